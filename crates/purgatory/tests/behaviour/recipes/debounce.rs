//! A debounced save: edits before, behind and after it.

use std::sync::mpsc;

use purgatory::{BoxedOperation, Purgatory};
use timer_core::ManualTimer;

use super::{MS, SECOND, by_hand, by_hand_and_late, guide::debounce::Document};

struct Editor {
    notes: Document,
    disk: mpsc::Sender<String>,
    saved: mpsc::Receiver<String>,
}

fn over(saves: Purgatory<&'static str, BoxedOperation>) -> Editor {
    let (disk, saved) = mpsc::channel();
    let notes = Document { name: "notes", text: Default::default(), saves, pending: None };
    Editor { notes, disk, saved }
}

fn editor() -> (ManualTimer, Editor) {
    let (timer, saves) = by_hand();
    (timer, over(saves))
}

impl Editor {
    fn edit(&mut self, text: &str) -> bool {
        let disk = self.disk.clone();
        self.notes.edit(text, move |text| drop(disk.send(text)))
    }

    #[track_caller]
    fn told(&self, expected: &[&str]) {
        assert_eq!(self.saved.try_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn edits_are_saved_once_when_quiet() {
    let (timer, mut editor) = editor();
    for text in ["a", "ab", "abc"] {
        assert!(editor.edit(text));
        timer.advance(2 * SECOND - MS);
    }
    editor.told(&[]);
    timer.advance(MS);
    editor.told(&["abc"]);
    timer.advance(60 * SECOND);
    assert!(editor.edit("abcd"));
    timer.advance(2 * SECOND);
    editor.told(&["abcd"]);
    super::nothing_is_left(&editor.notes.saves);
}

/// The save is on its way to the executor as the edit comes.
#[test]
fn an_edit_behind_an_expired_save_is_not_lost() {
    let (timer, saves, later) = by_hand_and_late();
    let mut editor = over(saves);
    editor.edit("a");
    timer.advance(2 * SECOND);
    editor.edit("ab");
    later.run();
    editor.told(&["ab"]); // the late one, which reads the newest text
    timer.advance(2 * SECOND);
    later.run();
    editor.told(&["ab"]);
    super::nothing_is_left(&editor.notes.saves);
}

#[test]
fn a_discarded_edit_is_not_saved_but_the_next_is() {
    let (timer, mut editor) = editor();
    editor.edit("a");
    assert!(editor.notes.discard() && !editor.notes.discard());
    timer.advance(60 * SECOND);
    editor.told(&[]);
    editor.edit("b");
    timer.advance(2 * SECOND);
    editor.told(&["b"]);
}

#[test]
fn a_gone_editor_and_a_shutdown_still_save() {
    let (timer, saves) = by_hand();
    let mut gone = over(saves.clone());
    gone.edit("a");
    let Editor { saved, .. } = gone;
    timer.advance(2 * SECOND);
    assert_eq!(saved.try_iter().collect::<Vec<_>>(), ["a"]);

    let mut editor = over(saves.clone());
    editor.edit("b");
    saves.shutdown(SECOND);
    editor.told(&["b"]);
    assert!(!editor.edit("bc"));
    editor.told(&[]);
    super::nothing_is_left(&saves);
}
