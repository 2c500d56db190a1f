//! Frames of the protocol: a byte that says what it is, a length, and so much content.
//!
//! A frame is cut by its length alone, so that whatever it contains, the next one begins where it ends. Memory is taken as bytes come, never for what a
//! length announces.

use std::io;

use crate::socket::Socket;

/// The longest content of a frame.
pub(crate) const LONGEST: usize = 64 << 20;
/// The longest content of a frame before the client has shown who it is.
pub(crate) const LONGEST_AT_FIRST: usize = 10_000;

/// How much is read in one go.
const PIECE: usize = 16 << 10;
/// Memory that is kept for the next frame.
const KEPT: usize = 1 << 20;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'b> {
    pub(crate) kind: u8,
    pub(crate) content: &'b [u8],
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// More bytes are needed.
    More,
    /// A frame, which has so many bytes in all.
    Whole(usize),
    /// The length is none, or beyond the limit.
    Wrong,
}

/// Cuts the frame at the beginning of these bytes; `head` bytes stand in front of its length.
pub(crate) fn cut(bytes: &[u8], head: usize, limit: usize) -> Cut {
    let Some(length) = bytes.get(head..head + 4) else { return Cut::More };
    let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
    match usize::try_from(length) {
        Ok(length) if length >= 4 && length - 4 <= limit => {
            if bytes.len() >= head + length {
                Cut::Whole(head + length)
            } else {
                Cut::More
            }
        }
        _ => Cut::Wrong,
    }
}

/// Bytes that have come and were not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The bytes that have come so far.
    pub(crate) received: u64,
}

impl Incoming {
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads more, which may be nothing yet where it is encrypted; `false` at the end of the stream.
    pub(crate) fn read(&mut self, socket: &Socket) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == 0 && self.buffer.len() > KEPT {
            self.buffer = Vec::new();
        }
        if self.buffer.len() - self.end < PIECE {
            // As much again as has come: frames of any length take few steps.
            self.buffer.resize(self.end + PIECE.max(self.end), 0);
        }
        let read = socket.read(&mut self.buffer[self.end..])?;
        let count = read.unwrap_or(0);
        self.end += count;
        self.received += count as u64;
        Ok(read.is_some())
    }

    /// Takes all that has come.
    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        let all = self.waiting().to_vec();
        self.start = self.end;
        all
    }

    /// Gives memory back that holds nothing.
    pub(crate) fn shrink(&mut self) {
        if self.start == self.end {
            *self = Self::default();
        }
    }

    /// Whether a whole frame is there, without waiting.
    pub(crate) fn has_frame(&self, limit: usize) -> bool {
        matches!(cut(self.waiting(), 1, limit), Cut::Whole(_))
    }

    /// The kind of the frame behind the first one, if it has come whole: a client that is gone before has not sent it.
    pub(crate) fn second_kind(&self, limit: usize) -> Option<u8> {
        let Cut::Whole(length) = cut(self.waiting(), 1, limit) else { return None };
        let behind = &self.waiting()[length..];
        match cut(behind, 1, limit) {
            Cut::Whole(_) => behind.first().copied(),
            Cut::More | Cut::Wrong => None,
        }
    }

    /// Takes the frame at the beginning, which is there.
    pub(crate) fn take(&mut self, head: usize, limit: usize) -> Frame<'_> {
        let Cut::Whole(length) = cut(self.waiting(), head, limit) else { return Frame { kind: 0, content: &[] } };
        let start = self.start;
        self.start += length;
        let kind = if head == 0 { 0 } else { self.buffer[start] };
        Frame { kind, content: &self.buffer[start + head + 4..start + length] }
    }
}

#[cfg(test)]
mod tests {
    use polychron_base::random::Random;

    use super::*;

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(content.len() as i32 + 4).to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn a_frame_is_cut_where_its_length_says() {
        let whole = frame(b'Q', b"SELECT 1\0");
        for end in 0..whole.len() {
            assert_eq!(cut(&whole[..end], 1, LONGEST), Cut::More, "{end}");
        }
        assert_eq!(cut(&whole, 1, LONGEST), Cut::Whole(whole.len()));
        assert_eq!(cut(&[whole.clone(), whole.clone()].concat(), 1, LONGEST), Cut::Whole(whole.len()));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        for length in [i32::MIN, -1, 0, 3, 15, LONGEST as i32 + 5, i32::MAX] {
            let bytes = [&[b'Q'][..], &length.to_be_bytes()].concat();
            assert_eq!(cut(&bytes, 1, 10), Cut::Wrong, "{length}");
        }
        assert_eq!(cut(&[b'Q', 0, 0, 0, 14], 1, 10), Cut::More);
    }

    #[test]
    fn frames_come_out_however_they_come_in() {
        let mut random = Random::from_seed(7);
        for _ in 0..200 {
            let contents: Vec<Vec<u8>> = (0..random.below(6))
                .map(|_| (0..random.below(40)).map(|_| random.next_u64() as u8).collect())
                .collect();
            let bytes: Vec<u8> = contents.iter().flat_map(|content| frame(b'x', content)).collect();
            let (mut incoming, mut found, mut given) = (Incoming::default(), Vec::new(), 0);
            while found.len() < contents.len() {
                if incoming.has_frame(LONGEST) {
                    found.push(incoming.take(1, LONGEST).content.to_vec());
                    continue;
                }
                let more = (random.below(9) as usize + 1).min(bytes.len() - given);
                incoming.buffer.truncate(incoming.end);
                incoming.buffer.extend_from_slice(&bytes[given..given + more]);
                incoming.end += more;
                given += more;
            }
            assert_eq!(found, contents);
        }
    }
}
