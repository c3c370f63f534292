//! The lengths of a request, checked before anything is decoded.
//!
//! The decoder trusts the count of an array: it reserves that many elements at once, so 4 bytes can
//! ask for 128 GiB, and an allocation that fails aborts the process: no panic, nothing to catch. So
//! each API lists its request's fields as they lie on the wire ([`Api`]), and [`check`] walks the frame
//! by it without allocating. A count is believed up to [`ELEMENTS_MAX`], and only when the bytes of
//! every element are there.

use anyhow::{Context, ensure};

use crate::{frame::PREFIX_BYTES, schemas::Api};

/// Array elements and tagged fields of one request together: bounds what decoding it can allocate.
pub(crate) const ELEMENTS_MAX: usize = 1 << 16;

pub(crate) enum Field {
    /// Integers, booleans, UUIDs: so many bytes.
    Fixed(usize),
    String,
    Bytes,
    Array(&'static [Field]),
    /// Present in this version and later ones.
    Since(i16, &'static Field),
    /// Present in this version and earlier ones.
    Until(i16, &'static Field),
}

/// Checks every length in a frame, which starts with the request header.
pub(crate) fn check(frame: &[u8], api: &Api, version: i16) -> anyhow::Result<()> {
    let mut walk = Walk { rest: frame, flexible: false, version, elements_left: ELEMENTS_MAX };
    walk.skip(PREFIX_BYTES)?;
    walk.field(&Field::String).context("client id")?; // never compact
    if api.key.request_header_version(version) >= 2 {
        walk.tagged_fields()?;
    }
    walk.flexible = version >= api.flexible_from;
    walk.fields(api.fields)
}

struct Walk<'a> {
    rest: &'a [u8],
    flexible: bool,
    version: i16,
    elements_left: usize,
}

impl Walk<'_> {
    fn fields(&mut self, fields: &[Field]) -> anyhow::Result<()> {
        fields.iter().try_for_each(|field| self.field(field))?;
        if self.flexible { self.tagged_fields() } else { Ok(()) }
    }

    fn field(&mut self, field: &Field) -> anyhow::Result<()> {
        let length = match field {
            Field::Since(first, field) if self.version >= *first => return self.field(field),
            Field::Until(last, field) if self.version <= *last => return self.field(field),
            Field::Since(..) | Field::Until(..) => return Ok(()),
            Field::Fixed(bytes) => return self.skip(*bytes),
            Field::String | Field::Bytes | Field::Array(_) if self.flexible => {
                i64::from(self.varint()?) - 1
            }
            Field::String => i16::from_be_bytes(self.take()?).into(),
            Field::Bytes | Field::Array(_) => i32::from_be_bytes(self.take()?).into(),
        };
        ensure!(length >= -1, "a length of {length}");
        match (field, usize::try_from(length)) {
            (_, Err(_)) => Ok(()), // -1: null
            (Field::Array(element), Ok(count)) => self.array(element, count),
            (_, Ok(bytes)) => self.skip(bytes),
        }
    }

    fn array(&mut self, element: &[Field], count: usize) -> anyhow::Result<()> {
        self.spend(count)?;
        match element {
            // A lone integer is no struct: no tagged fields follow it.
            [Field::Fixed(bytes)] => self.skip(count * bytes),
            _ => (0..count).try_for_each(|_| self.fields(element)),
        }
    }

    fn tagged_fields(&mut self) -> anyhow::Result<()> {
        let count = self.varint()? as usize;
        self.spend(count)?;
        for _ in 0..count {
            self.varint()?;
            let bytes = self.varint()? as usize;
            self.skip(bytes)?;
        }
        Ok(())
    }

    fn spend(&mut self, elements: usize) -> anyhow::Result<()> {
        let left = self.elements_left;
        ensure!(elements <= left, "{elements} elements announced, {left} are allowed");
        self.elements_left -= elements;
        Ok(())
    }

    fn varint(&mut self) -> anyhow::Result<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
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
