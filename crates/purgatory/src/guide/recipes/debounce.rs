// Documents that are saved once they have been left alone for two seconds.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{OperationId, Purgatory, when};

const QUIET: Duration = Duration::from_secs(2);

pub struct Document {
    pub name: &'static str,
    pub unsaved: Arc<Mutex<Option<String>>>, // the newest text, until a save takes it
    pub saves: Purgatory<&'static str>,
    pub pending: Option<OperationId>,
}

impl Document {
    /// Changes the text. `save` gets the newest text, at the latest when the purgatory shuts down.
    /// Returns false if the purgatory is shut down or full: the text is then in `unsaved`, unless a
    /// save that was due has taken it.
    pub fn edit(&mut self, text: &str, save: impl FnOnce(String) + Send + 'static) -> bool {
        // The text first: a save that is about to run then takes it.
        *self.unsaved.lock().unwrap() = Some(text.to_owned());
        // A save that is still parked is delayed.
        if let Some(id) = self.pending {
            if self.saves.reschedule(id, QUIET) {
                return true;
            }
        }
        // Otherwise a new one is parked.
        let unsaved = self.unsaved.clone();
        let end = move |_| {
            let newest = unsaved.lock().unwrap().take(); // one step: saved once, or discarded
            if let Some(text) = newest {
                save(text);
            }
        };
        let parked = self
            .saves
            .try_complete_else_watch(when(|| false, end), &[self.name], QUIET);
        self.pending = parked.ok().flatten();
        self.pending.is_some()
    }

    /// Drops the text that is not saved yet. Returns false if no text was unsaved.
    pub fn discard(&self) -> bool {
        // Taking the text also stops a save that has expired and waits for the executor, which no
        // cancel reaches.
        let discarded = self.unsaved.lock().unwrap().take();
        self.saves.cancel_for_key(&self.name, "discarded");
        discarded.is_some()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = purgatory::timer_core::ManualTimer::new();
    let saves = Purgatory::on(&timer, "saves")?;
    let mut notes = Document {
        name: "notes",
        unsaved: Arc::default(),
        saves,
        pending: None,
    };
    let (disk, saved) = std::sync::mpsc::channel();
    // Each edit comes before two quiet seconds have passed.
    for text in ["a", "ab", "abc"] {
        let disk = disk.clone();
        assert!(notes.edit(text, move |text| disk.send(text).unwrap()));
        timer.advance(QUIET / 2);
    }
    timer.advance(QUIET / 2);
    assert_eq!(saved.try_iter().collect::<Vec<_>>(), ["abc"]);
    Ok(())
}
