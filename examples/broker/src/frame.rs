//! Framing: a big-endian length, then that many bytes. The length is what a stranger claims, so it
//! is checked first, and memory is taken for the bytes that really arrive: at most twice as much.
//!
//! A produce above the bound is read all the same, but its records are thrown away as they arrive:
//! so it can be answered with MESSAGE_TOO_LARGE, where a closed connection would make the client
//! send it again and again.

use std::io::{Read, Take, copy, sink};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

/// API key, API version and correlation id: no request is shorter.
pub(crate) const PREFIX_BYTES: usize = 8;
/// A longer produce is not even skimmed; no client's `message.max.bytes` goes as far.
const SKIMMED_MAX: u64 = 1 << 30;
/// The buffer of a longer frame grows in steps, by this or to twice its size.
const STEP_BYTES: usize = 16 << 10;
/// Takes the place of the records: 12 bytes of a batch that announces 2 GiB.
const TOO_LARGE: &[u8] = &[0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff];

/// Reads the next request, without its length, into memory that `take` allows; `None`: the
/// connection ended between two requests. An error is an [`std::io::Error`], one of `take`, or else
/// the client's fault.
pub(crate) fn read_frame(
    reader: &mut impl Read,
    bytes_max: u32,
    take: impl FnMut(usize) -> Result<()>,
) -> Result<Option<Bytes>> {
    let mut prefix = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut prefix)?;
    let length = match <[u8; 4]>::try_from(prefix.as_slice()) {
        Ok(prefix) => i32::from_be_bytes(prefix),
        Err(_) if prefix.is_empty() => return Ok(None),
        Err(_) => bail!("truncated frame: closed inside its length"),
    };
    let expected = usize::try_from(length).unwrap_or(0);
    ensure!(expected >= PREFIX_BYTES, "malformed frame: a length of {length}");
    let mut frame = Frame { bytes: Vec::new(), take };
    if length.unsigned_abs() > bytes_max {
        let oversized = || format!("oversized frame: {length} bytes, the limit is {bytes_max}");
        ensure!(expected as u64 <= SKIMMED_MAX, oversized());
        frame.read(reader, PREFIX_BYTES)?;
        ensure!(frame.bytes.starts_with(&(ApiKey::Produce as i16).to_be_bytes()), oversized());
        let rest = reader.take((expected - PREFIX_BYTES) as u64);
        frame.skim(rest, bytes_max).with_context(oversized)?;
    } else {
        let came = frame.read(reader, expected)?;
        ensure!(came == expected, "truncated frame: closed after {came} of {expected} bytes");
    }
    Ok(Some(frame.bytes.into()))
}

struct Frame<T> {
    bytes: Vec<u8>,
    take: T,
}

impl<T: FnMut(usize) -> Result<()>> Frame<T> {
    /// Reads so many more bytes, and returns how many came before the end. The buffer grows as they
    /// arrive, so a claimed length reserves nothing.
    fn read(&mut self, reader: &mut impl Read, bytes: usize) -> Result<usize> {
        let (begin, end) = (self.bytes.len(), self.bytes.len() + bytes);
        while self.bytes.len() < end {
            let missing = end - self.bytes.len();
            if self.bytes.capacity() == self.bytes.len() {
                let step = missing.min(self.bytes.len() + STEP_BYTES);
                (self.take)(step)?;
                self.bytes.reserve_exact(step);
            }
            let room = missing.min(self.bytes.capacity() - self.bytes.len());
            if reader.by_ref().take(room as u64).read_to_end(&mut self.bytes)? < room {
                break;
            }
        }
        Ok(self.bytes.len() - begin)
    }

    /// Keeps what a produce begins with and its partitions, without the records.
    fn skim(&mut self, mut rest: Take<impl Read>, bytes_max: u32) -> Result<()> {
        let rest = &mut rest;
        for _ in 0..2 {
            let string = self.keep(rest, 2)?; // client id, transactional id
            self.keep(rest, string)?;
        }
        self.keep(rest, 6)?; // acks, timeout
        for _ in 0..self.keep(rest, 4)? {
            let topic = self.keep(rest, 2)?;
            self.keep(rest, topic)?;
            for _ in 0..self.keep(rest, 4)? {
                self.keep(rest, 4)?; // partition
                let records = self.keep(rest, 4)?;
                self.bytes.truncate(self.bytes.len() - 4);
                self.read(&mut &*TOO_LARGE, TOO_LARGE.len())?;
                let thrown_away = copy(&mut rest.take(records as u64), &mut sink())?;
                ensure!(thrown_away == records as u64, "truncated");
                ensure!(self.bytes.len() <= bytes_max as usize, "too large without its records");
            }
        }
        ensure!(rest.limit() == 0, "more than a produce");
        Ok(())
    }

    /// Keeps the next bytes. Returns the number that they are; for a negative one, which stands for
    /// null, 0.
    fn keep(&mut self, rest: &mut impl Read, bytes: usize) -> Result<usize> {
        ensure!(self.read(rest, bytes)? == bytes, "truncated");
        let next = &self.bytes[self.bytes.len() - bytes..];
        let number = next.iter().fold(0, |number, digit| number << 8 | usize::from(*digit));
        Ok(if next.first().is_some_and(|digit| *digit < 0x80) { number } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 1024;

    fn unbounded(_: usize) -> Result<()> {
        Ok(())
    }

    fn read(length: i32, body: &[u8]) -> std::result::Result<Bytes, String> {
        let bytes = [&length.to_be_bytes(), body].concat();
        let frame = read_frame(&mut bytes.as_slice(), MAX, unbounded)
            .map_err(|reason| reason.to_string())?;
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
            assert!(read(length, &[0, 3]).unwrap_err().starts_with("oversized"), "{length}");
        }
    }

    #[test]
    fn an_end_inside_a_frame_is_told_from_an_end_between_two() {
        assert!(read(16, &[0; 9]).unwrap_err().ends_with("closed after 9 of 16 bytes"));
        assert!(read_frame(&mut [0, 0].as_slice(), MAX, unbounded).is_err());
        assert_eq!(read_frame(&mut [].as_slice(), MAX, unbounded).unwrap(), None);
    }

    #[test]
    fn a_claimed_length_reserves_no_memory() {
        struct Claims(&'static [u8]);
        impl Read for Claims {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                assert!(buffer.len() < 64 << 10, "{} bytes reserved", buffer.len());
                self.0.read(buffer)
            }
        }
        assert!(read_frame(&mut Claims(&[0x40, 0, 0, 0]), u32::MAX, unbounded).is_err());
    }

    /// A produce to `t`, partitions 5 and 6, with so many bytes of records each.
    fn produce(records: [usize; 2]) -> Vec<u8> {
        let start = [0, 0, 0, 7, 0, 0, 0, 9, 0, 1, b'c', 0xff, 0xff, 0, 1, 0, 0, 0, 50];
        let mut frame = [&start[..], &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2]].concat();
        for (partition, bytes) in [5, 6].iter().zip(records) {
            frame.extend_from_slice(&[0, 0, 0, *partition]);
            frame.extend_from_slice(&(bytes as i32).to_be_bytes());
            frame.extend(vec![7; bytes]);
        }
        frame
    }

    #[test]
    fn a_produce_above_the_limit_is_read_without_its_records() {
        let frame = produce([2000, 10]);
        let kept = read(frame.len() as i32, &frame).unwrap();
        let (mut without, announced) = (produce([0, 0]), TOO_LARGE.len());
        let partitions = without.split_off(without.len() - 16);
        for partition in partitions.chunks(8) {
            without.extend_from_slice(&partition[..4]);
            without.extend_from_slice(TOO_LARGE);
        }
        assert_eq!(kept, without);
        assert_eq!(announced, 4 + 12);
        for end in 8..frame.len() {
            let cut = read(frame.len() as i32, &frame[..end]).unwrap_err();
            assert!(cut.starts_with("oversized"), "{end}: {cut}");
        }
        let more = [&frame[..], &[0]].concat();
        assert!(read(more.len() as i32, &more).unwrap_err().starts_with("oversized"));
    }

    #[test]
    fn names_that_are_too_large_by_themselves_are_not_kept() {
        let mut frame = produce([0, 2000]);
        frame.splice(8..10, [0x7f, 0xff]); // the client id
        frame.splice(10..10, vec![b'x'; 0x7fff - 1]);
        assert!(read(frame.len() as i32, &frame).unwrap_err().starts_with("oversized"));
    }
}
