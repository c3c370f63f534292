//! Keys as text: their `Debug`, as far as there is room.

use std::fmt::{self, Debug, Write};

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

/// A key's `Debug`, cut when it is long.
pub(crate) fn shown(key: &impl Debug) -> String {
    let mut short = Short { text: String::new(), left: CHARS_MAX };
    // An error is the cut, or the key's own: what was written so far is shown either way.
    let _ = write!(short, "{key:?}");
    short.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_debug() {
        assert_eq!(shown(&("orders", 7)), r#"("orders", 7)"#);
    }

    #[test]
    fn a_long_key_is_cut_where_the_room_ends() {
        let exactly = "x".repeat(CHARS_MAX - 2); // and the quotes
        assert_eq!(shown(&exactly), format!("{exactly:?}"));
        let longer = shown(&"ö".repeat(1000));
        assert_eq!((longer.chars().count(), longer.chars().last()), (CHARS_MAX + 1, Some('…')));
    }

    #[test]
    fn a_key_that_cannot_be_written_is_shown_as_far_as_it_got() {
        struct Broken;
        impl Debug for Broken {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("half")?;
                Err(fmt::Error)
            }
        }
        assert_eq!(shown(&Broken), "half");
    }
}
