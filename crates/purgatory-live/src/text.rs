//! Keys as text of limited length. The program's function writes a key, and is stopped at the
//! limit.

use std::{
    fmt::{self, Display, Formatter, Write},
    mem,
};

/// The maximum number of characters shown of a key.
const CHARS_MAX: usize = 120;

/// A writer that accepts characters up to the limit and refuses the rest, so that a key of a
/// megabyte is not written out to be cut.
struct LimitedText {
    text: String,
    /// The number of characters that still fit.
    remaining: usize,
    /// Set once a character did not fit.
    is_cut: bool,
}

impl Write for LimitedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for character in more.chars() {
            if self.remaining == 0 {
                // Only once: the writer may go on despite the error.
                if !mem::replace(&mut self.is_cut, true) {
                    self.text.push('…');
                }
                return Err(fmt::Error);
            }
            self.remaining -= 1;
            self.text.push(character);
        }
        Ok(())
    }
}

/// A function that writes keys: their `Debug`, their `Display`, or a closure.
pub(crate) type Show<K> = dyn Fn(&K, &mut Formatter<'_>) -> fmt::Result + Send + Sync;

/// A key as `show` writes it.
struct Shown<'a, K> {
    key: &'a K,
    show: &'a Show<K>,
}

impl<K> Display for Shown<'_, K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.show)(self.key, f)
    }
}

/// Writes a key with `show`; cuts it when it is long.
pub(crate) fn shown<K>(key: &K, show: &Show<K>) -> String {
    let mut limited = LimitedText {
        text: String::new(),
        remaining: CHARS_MAX,
        is_cut: false,
    };
    // An error is the cut, or the key's own: the text so far is shown either way.
    _ = write!(limited, "{}", Shown { key, show });
    limited.text
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn debugged<K: Debug + 'static>(key: &K) -> String {
        shown(key, &<K as Debug>::fmt)
    }

    #[test]
    fn key_is_written_by_the_given_function() {
        assert_eq!(debugged(&("orders", 7)), r#"("orders", 7)"#);
        assert_eq!(shown(&"orders", &<&str as Display>::fmt), "orders");
        assert_eq!(
            shown(&7, &|key: &i32, f| write!(f, "partition {key}")),
            "partition 7"
        );
    }

    #[test]
    fn long_key_is_cut_at_the_limit() {
        // Two characters are the quotes.
        let exactly = "x".repeat(CHARS_MAX - 2);
        assert_eq!(debugged(&exactly), format!("{exactly:?}"));
        let longer = debugged(&"ö".repeat(1000));
        assert_eq!(longer.chars().count(), CHARS_MAX + 1);
        assert_eq!(longer.chars().last(), Some('…'));
    }

    #[test]
    fn key_that_fails_to_format_is_shown_in_part() {
        let broken = |_: &(), f: &mut Formatter<'_>| {
            f.write_str("half")?;
            Err(fmt::Error)
        };
        assert_eq!(shown(&(), &broken), "half");
    }

    #[test]
    fn key_that_writes_on_beyond_the_limit_is_cut_once() {
        let writes_on = |_: &(), f: &mut Formatter<'_>| {
            for _ in 0..1000 {
                let _ = f.write_str("7, "); // it takes no error for an end
            }
            Ok(())
        };
        let text = shown(&(), &writes_on);
        assert_eq!(text.chars().count(), CHARS_MAX + 1);
    }
}
