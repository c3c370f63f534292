//! The lengths of a request, checked before anything is decoded.
//!
//! The decoder trusts the count of an array: it reserves that many elements at once, so 4 bytes can
//! ask for 128 GiB, and an allocation that fails aborts the process: no panic, nothing to catch. So
//! each API lists its request's fields as they lie on the wire ([`Api`]), and [`check`] walks the frame
//! by it without allocating. A count is believed up to [`ELEMENTS_MAX`], and only when the bytes of
//! every element are there.

use anyhow::{Context, ensure};

use crate::{frame::PREFIX_BYTES, schemas::Api};

/// Array elements of one request together: bounds what decoding it can allocate.
pub(crate) const ELEMENTS_MAX: usize = 1 << 16;

pub(crate) enum Field {
    /// Integers, booleans, UUIDs: so many bytes.
    Fixed(usize),
    String,
    Bytes,
    Array(&'static [Field]),
    /// Present in this version and later ones.
    Since(i16, &'static Field),
}

/// Checks every length in a frame, which starts with the request header.
pub(crate) fn check(frame: &[u8], api: &Api, version: i16) -> anyhow::Result<()> {
    let mut walk = Walk { rest: frame, version, elements_left: ELEMENTS_MAX };
    walk.skip(PREFIX_BYTES)?;
    walk.field(&Field::String).context("client id")?;
    api.fields.iter().try_for_each(|field| walk.field(field))
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    elements_left: usize,
}

impl Walk<'_> {
    fn field(&mut self, field: &Field) -> anyhow::Result<()> {
        let length = match field {
            Field::Since(first, field) if self.version >= *first => return self.field(field),
            Field::Since(..) => return Ok(()),
            Field::Fixed(bytes) => return self.skip(*bytes),
            Field::String => i16::from_be_bytes(self.take()?).into(),
            _ => i32::from_be_bytes(self.take()?),
        };
        ensure!(length >= -1, "a length of {length}");
        match (field, usize::try_from(length)) {
            (_, Err(_)) => Ok(()), // -1: null
            (Field::Array(element), Ok(count)) => {
                let left = self.elements_left;
                ensure!(count <= left, "{count} elements announced, {left} are allowed");
                self.elements_left -= count;
                let mut fields = (0..count).flat_map(|_| element.iter());
                fields.try_for_each(|field| self.field(field))
            }
            (_, Ok(bytes)) => self.skip(bytes),
        }
    }

    fn take<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().with_context(|| self.missing(N))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn skip(&mut self, bytes: usize) -> anyhow::Result<()> {
        self.rest = self.rest.get(bytes..).with_context(|| self.missing(bytes))?;
        Ok(())
    }

    fn missing(&self, bytes: usize) -> String {
        format!("{bytes} bytes announced, {} left", self.rest.len())
    }
}
