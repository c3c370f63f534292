//! Framing: a big-endian length, then that many bytes. The length is not to be trusted: it is
//! checked first, and memory is allocated only for bytes that arrive.

use std::io::Read;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;

/// API key, API version and correlation id: no request is shorter.
pub(crate) const PREFIX_BYTES: usize = 8;

/// Reads the next request, without its length; `None` if the connection ended between two requests.
/// An error other than an [`std::io::Error`] is the client's fault.
pub(crate) fn read_frame(reader: &mut impl Read, bytes_max: u32) -> Result<Option<Bytes>> {
    // Only a stream that ends before the first byte ends between two requests.
    let mut prefix = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut prefix)?;
    let length = match <[u8; 4]>::try_from(prefix.as_slice()) {
        Ok(prefix) => i32::from_be_bytes(prefix),
        Err(_) if prefix.is_empty() => return Ok(None),
        Err(_) => bail!("truncated frame: closed inside its length"),
    };

    // A length that no request has is the client's fault.
    let expected = usize::try_from(length).unwrap_or(0);
    ensure!(
        expected >= PREFIX_BYTES,
        "malformed frame: a length of {length}"
    );
    ensure!(
        length.unsigned_abs() <= bytes_max,
        "oversized frame: {length} bytes, the limit is {bytes_max}"
    );

    // The vector grows with the bytes that arrive, whatever was announced.
    let mut frame = Vec::new();
    let mut rest = reader.by_ref().take(expected as u64);
    let received = rest.read_to_end(&mut frame)?;
    ensure!(
        received == expected,
        "truncated frame: closed after {received} of {expected} bytes"
    );
    Ok(Some(frame.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: i32, body: &[u8]) -> std::result::Result<Bytes, String> {
        let bytes = [&length.to_be_bytes(), body].concat();
        let frame = read_frame(&mut bytes.as_slice(), 1024).map_err(|reason| reason.to_string())?;
        Ok(frame.unwrap())
    }

    #[test]
    fn bad_lengths_are_refused_by_name() {
        assert_eq!(read(8, b"request1 and more").unwrap(), "request1");
        assert_eq!(
            read(1024, &[7; 1024]).unwrap().len(),
            1024,
            "the limit itself is allowed"
        );
        // Lengths too short for any request, lengths too long, and frames that are cut.
        for length in [i32::MIN, -1, 0, 2, 7] {
            assert!(
                read(length, &[0; 16]).unwrap_err().starts_with("malformed"),
                "{length}"
            );
        }
        for length in [1025, i32::MAX] {
            assert!(
                read(length, &[0, 3]).unwrap_err().starts_with("oversized"),
                "{length}"
            );
        }
        assert!(
            read(16, &[0; 9])
                .unwrap_err()
                .ends_with("closed after 9 of 16 bytes")
        );
        assert!(read_frame(&mut [0, 0].as_slice(), 1024).is_err());
        assert_eq!(read_frame(&mut [].as_slice(), 1024).unwrap(), None);
    }

    #[test]
    fn announced_length_reserves_no_memory() {
        struct Claims(&'static [u8]);
        impl Read for Claims {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                assert!(buffer.len() < 64 << 10, "{} bytes reserved", buffer.len());
                self.0.read(buffer)
            }
        }
        assert!(read_frame(&mut Claims(&[0x40, 0, 0, 0]), u32::MAX).is_err());
    }
}
