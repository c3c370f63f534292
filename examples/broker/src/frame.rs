//! Framing: a big-endian length, then that many bytes. The length is what a stranger claims, so it
//! is checked first, and memory follows the bytes that really arrive.

use std::io::{self, Read};

use anyhow::{bail, ensure};
use bytes::Bytes;

/// API key, API version and correlation id: no request is shorter.
pub(crate) const PREFIX_BYTES: usize = 8;

/// Reads the next request, without its length; `None`: the connection ended between two requests.
/// An error is an [`io::Error`], or else the client's fault.
pub(crate) fn read_frame(reader: &mut impl Read, bytes_max: u32) -> anyhow::Result<Option<Bytes>> {
    let prefix = read_up_to(reader, 4)?;
    let length = match <[u8; 4]>::try_from(prefix.as_slice()) {
        Ok(prefix) => i32::from_be_bytes(prefix),
        Err(_) if prefix.is_empty() => return Ok(None),
        Err(_) => bail!("truncated frame: closed inside its length"),
    };
    let expected = usize::try_from(length).unwrap_or(0);
    ensure!(expected >= PREFIX_BYTES, "malformed frame: a length of {length}");
    let too_large = length.unsigned_abs() > bytes_max;
    ensure!(!too_large, "oversized frame: {length} bytes, the limit is {bytes_max}");
    let body = read_up_to(reader, expected)?;
    let received = body.len();
    ensure!(received == expected, "truncated frame: closed after {received} of {expected} bytes");
    Ok(Some(body.into()))
}

/// `read_to_end` grows its buffer as bytes arrive, so a claimed length reserves nothing.
fn read_up_to(reader: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    reader.by_ref().take(bytes as u64).read_to_end(&mut buffer)?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 1024;

    fn read(length: i32, body: &[u8]) -> Result<Bytes, String> {
        let bytes = [&length.to_be_bytes(), body].concat();
        let frame = read_frame(&mut bytes.as_slice(), MAX).map_err(|reason| reason.to_string())?;
        Ok(frame.unwrap())
    }

    #[test]
    fn a_length_is_judged_before_the_body_is_read() {
        assert_eq!(read(8, b"request1 and more").unwrap(), "request1");
        assert_eq!(read(1024, &[7; 1024]).unwrap().len(), 1024, "the limit itself is allowed");
        for length in [i32::MIN, -1, 0, 2, 7] {
            assert!(read(length, &[0; 16]).unwrap_err().starts_with("malformed"), "{length}");
        }
        for length in [1025, i32::MAX] {
            assert!(read(length, &[0; 16]).unwrap_err().starts_with("oversized"), "{length}");
        }
    }

    #[test]
    fn an_end_inside_a_frame_is_told_from_an_end_between_two() {
        assert!(read(16, &[0; 9]).unwrap_err().ends_with("closed after 9 of 16 bytes"));
        assert!(read_frame(&mut [0, 0].as_slice(), MAX).is_err());
        assert_eq!(read_frame(&mut [].as_slice(), MAX).unwrap(), None);
    }

    #[test]
    fn a_claimed_length_reserves_no_memory() {
        struct Claims(&'static [u8]);
        impl Read for Claims {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert!(buffer.len() < 64 << 10, "{} bytes reserved", buffer.len());
                self.0.read(buffer)
            }
        }
        assert!(read_frame(&mut Claims(&[0x40, 0, 0, 0]), u32::MAX).is_err());
    }
}
