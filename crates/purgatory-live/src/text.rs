//! Keys as text, as far as there is shard.

use std::fmt::{self, Display, Formatter, Write};

/// As many characters of a key are shown.
const CHARS_MAX: usize = 120;

/// Takes what fits, and refuses the rest: a key of a megabyte is not written out to be cut.
struct Short {
    text: String,
    left: usize,
}

impl Write for Short {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            if self.left == 0 {
                self.text.push('…');
                return Err(fmt::Error);
            }
            self.left -= 1;
            self.text.push(character);
        }
        Ok(())
    }
}

/// How keys are written: their `Debug`, their `Display`, or a function of the user's.
pub(crate) type Show<K> = dyn Fn(&K, &mut Formatter<'_>) -> fmt::Result + Send + Sync;

struct Shown<'a, K> {
    key: &'a K,
    show: &'a Show<K>,
}

impl<K> Display for Shown<'_, K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.show)(self.key, f)
    }
}

/// A key as `show` writes it, cut when it is long.
pub(crate) fn shown<K>(key: &K, show: &Show<K>) -> String {
    let mut short = Short {
        text: String::new(),
        left: CHARS_MAX,
    };
    // An error is the cut, or the key's own: what was written so far is shown either way.
    let _ = write!(short, "{}", Shown { key, show });
    short.text
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn debugged<K: Debug + 'static>(key: &K) -> String {
        shown(key, &<K as Debug>::fmt)
    }

    #[test]
    fn a_key_is_written_as_it_was_asked_for() {
        assert_eq!(debugged(&("orders", 7)), r#"("orders", 7)"#);
        assert_eq!(shown(&"orders", &<&str as Display>::fmt), "orders");
        assert_eq!(
            shown(&7, &|key: &i32, f| write!(f, "partition {key}")),
            "partition 7"
        );
    }

    #[test]
    fn a_long_key_is_cut_where_the_room_ends() {
        let exactly = "x".repeat(CHARS_MAX - 2); // and the quotes
        assert_eq!(debugged(&exactly), format!("{exactly:?}"));
        let longer = debugged(&"ö".repeat(1000));
        assert_eq!(
            (longer.chars().count(), longer.chars().last()),
            (CHARS_MAX + 1, Some('…'))
        );
    }

    #[test]
    fn a_key_that_fails_to_format_is_shown_in_part() {
        let broken = |_: &(), f: &mut Formatter<'_>| {
            f.write_str("half")?;
            Err(fmt::Error)
        };
        assert_eq!(shown(&(), &broken), "half");
    }
}
