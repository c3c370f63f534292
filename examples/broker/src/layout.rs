//! The lengths of a request, checked before anything is decoded.
//!
//! The decoder trusts the count of an array: it reserves that many elements at once, so 4 bytes can
//! ask for 128 GiB, and an allocation that fails aborts the process: no panic, nothing to catch. So
//! each API says how its request lies on the wire ([`Api::fields`]), and [`check`] walks the frame
//! by it without allocating. A count is believed up to [`ELEMENTS_MAX`], and only when the bytes of
//! every element are there.

use anyhow::{Context, ensure};
use bytes::Buf;

use crate::{frame::PREFIX_BYTES, schemas::Api};

/// Array elements of one request together: bounds what decoding it can allocate.
pub(crate) const ELEMENTS_MAX: usize = 1 << 16;

/// Checks every length in a frame, which starts with the request header; returns how many elements
/// its arrays have.
pub(crate) fn check(frame: &[u8], api: &Api, version: i16) -> anyhow::Result<usize> {
    let mut walk = Walk { rest: frame, version, elements_left: ELEMENTS_MAX };
    walk.skip(PREFIX_BYTES)?;
    walk.fields(b"s").context("client id")?;
    walk.fields(api.fields)?;
    Ok(ELEMENTS_MAX - walk.elements_left)
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    elements_left: usize,
}

impl Walk<'_> {
    fn fields(&mut self, mut fields: &[u8]) -> anyhow::Result<()> {
        while let [field, behind @ ..] = fields {
            fields = behind;
            let bytes = match field {
                b's' => length_of(self.rest.try_get_i16()?.into())?,
                b'b' => length_of(self.rest.try_get_i32()?)?,
                bracket @ (b'[' | b'<') => {
                    let (mut inside, behind) = closed(fields);
                    fields = behind;
                    let times = if *bracket == b'[' {
                        self.count()?
                    } else {
                        let since = inside.split_off_first().map_or(0, |digit| digit - b'0');
                        usize::from(self.version >= since.into())
                    };
                    (0..times).try_for_each(|_| self.fields(inside))?;
                    continue;
                }
                digit => usize::from(digit - b'0'),
            };
            self.skip(bytes)?;
        }
        Ok(())
    }

    /// Of an array's elements.
    fn count(&mut self) -> anyhow::Result<usize> {
        let count = length_of(self.rest.try_get_i32()?)?;
        let left = self.elements_left;
        ensure!(count <= left, "{count} elements announced, {left} are allowed");
        self.elements_left -= count;
        Ok(count)
    }

    fn skip(&mut self, bytes: usize) -> anyhow::Result<()> {
        let missing = || format!("{bytes} bytes announced, {} left", self.rest.len());
        self.rest = self.rest.get(bytes..).with_context(missing)?;
        Ok(())
    }
}

/// -1 stands for null, which has none.
fn length_of(length: i32) -> anyhow::Result<usize> {
    ensure!(length >= -1, "a length of {length}");
    Ok(usize::try_from(length).unwrap_or(0))
}

/// What is between a bracket, which is open, and its end; what is behind.
fn closed(fields: &[u8]) -> (&[u8], &[u8]) {
    let mut open = 1;
    let end = fields.iter().position(|field| {
        open += i32::from(b"[<".contains(field)) - i32::from(b"]>".contains(field));
        open == 0
    });
    let (inside, behind) = fields.split_at(end.unwrap_or(fields.len()));
    (inside, behind.get(1..).unwrap_or_default())
}
