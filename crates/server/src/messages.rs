//! What clients send, decoded in place: names, texts and values are references into the frame.

use polychron_sql::{SqlError, SqlState};

use crate::error::malformed;
use crate::frames::Frame;

/// A message of a client that has shown who it is.
#[derive(Debug)]
pub(crate) enum Message<'b> {
    Query(&'b str),
    Parse { name: &'b str, text: &'b str, types: Longs<'b> },
    Bind(Bind<'b>),
    Describe(Named<'b>),
    Close(Named<'b>),
    Execute { portal: &'b str, most: usize },
    Flush,
    Sync,
    Terminate,
    FunctionCall,
    CopyData(&'b [u8]),
    CopyDone,
    CopyFail(&'b str),
}

/// A statement or a portal, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named<'b> {
    Statement(&'b str),
    Portal(&'b str),
}

/// What Bind says.
#[derive(Debug)]
pub(crate) struct Bind<'b> {
    pub(crate) portal: &'b str,
    pub(crate) statement: &'b str,
    pub(crate) formats: Shorts<'b>,
    pub(crate) values: Values<'b>,
    pub(crate) result_formats: Shorts<'b>,
}

/// Integers of 16 bits, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shorts<'b>(&'b [u8]);

impl Shorts<'_> {
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = i16> {
        self.0.chunks_exact(2).map(|bytes| i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn len(self) -> usize {
        self.0.len() / 2
    }
}

/// Integers of 32 bits, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Longs<'b>(&'b [u8]);

impl Longs<'_> {
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = u32> {
        self.0.chunks_exact(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// Values with their lengths, which were found to lie within the frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values<'b> {
    pub(crate) count: usize,
    bytes: &'b [u8],
}

impl<'b> Values<'b> {
    /// `None` is NULL.
    pub(crate) fn iter(self) -> impl Iterator<Item = Option<&'b [u8]>> {
        let mut content = Content(self.bytes);
        (0..self.count).map(move |_| content.value().ok().flatten())
    }
}

/// What is left of a frame's content.
pub(crate) struct Content<'b>(pub(crate) &'b [u8]);

impl<'b> Content<'b> {
    fn bytes(&mut self, length: usize) -> Result<&'b [u8], SqlError> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            return Err(malformed("insufficient data left in message"));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SqlError> {
        self.bytes(N).map(|bytes| bytes.try_into().unwrap_or([0; N]))
    }

    fn count(&mut self) -> Result<usize, SqlError> {
        self.array().map(u16::from_be_bytes).map(usize::from)
    }

    pub(crate) fn int4(&mut self) -> Result<i32, SqlError> {
        self.array().map(i32::from_be_bytes)
    }

    /// A text up to the byte 0.
    pub(crate) fn text(&mut self) -> Result<&'b str, SqlError> {
        let Some(end) = self.0.iter().position(|byte| *byte == 0) else {
            return Err(malformed("invalid string in message"));
        };
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        str::from_utf8(text).map_err(|_| {
            SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
        })
    }

    fn shorts(&mut self) -> Result<Shorts<'b>, SqlError> {
        let count = self.count()?;
        self.bytes(count * 2).map(Shorts)
    }

    fn longs(&mut self) -> Result<Longs<'b>, SqlError> {
        let count = self.count()?;
        self.bytes(count * 4).map(Longs)
    }

    /// A value behind its length; −1 is NULL.
    pub(crate) fn value(&mut self) -> Result<Option<&'b [u8]>, SqlError> {
        match self.int4()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| malformed("invalid length of a value in message"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    fn values(&mut self) -> Result<Values<'b>, SqlError> {
        let count = self.count()?;
        let bytes = self.0;
        (0..count).try_for_each(|_| self.value().map(|_| ()))?;
        Ok(Values { count, bytes: &bytes[..bytes.len() - self.0.len()] })
    }

    fn named(&mut self) -> Result<Named<'b>, SqlError> {
        match self.array()? {
            [b'S'] => self.text().map(Named::Statement),
            [b'P'] => self.text().map(Named::Portal),
            [other] => Err(malformed(format!("invalid kind of object in message: {other}"))),
        }
    }

    pub(crate) fn end(&self) -> Result<(), SqlError> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed("invalid message format")) }
    }
}

/// Whether messages of this kind exist. Behind another one nobody knows what follows.
pub(crate) fn is_known(kind: u8) -> bool {
    b"QPBDCEHSXFdcf".contains(&kind)
}

/// Whether messages of this kind belong to the extended protocol, in which an error is followed by silence up to Sync.
pub(crate) fn is_extended(kind: u8) -> bool {
    b"PBDCEH".contains(&kind)
}

/// Decodes a frame of a known kind.
///
/// # Errors
/// Its content is not that of such a message.
pub(crate) fn decode(frame: Frame<'_>) -> Result<Message<'_>, SqlError> {
    let mut content = Content(frame.content);
    let message = match frame.kind {
        b'Q' => Message::Query(content.text()?),
        b'P' => Message::Parse { name: content.text()?, text: content.text()?, types: content.longs()? },
        b'B' => Message::Bind(Bind {
            portal: content.text()?,
            statement: content.text()?,
            formats: content.shorts()?,
            values: content.values()?,
            result_formats: content.shorts()?,
        }),
        b'D' => Message::Describe(content.named()?),
        b'C' => Message::Close(content.named()?),
        b'E' => {
            let portal = content.text()?;
            // As PostgreSQL has it, a negative number is no limit.
            let most = usize::try_from(content.int4()?).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
            Message::Execute { portal, most }
        }
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        // Whatever it contains, nothing comes behind it.
        b'X' => return Ok(Message::Terminate),
        b'F' => {
            content.0 = &[];
            Message::FunctionCall
        }
        b'd' => Message::CopyData(std::mem::take(&mut content.0)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(content.text()?),
        other => return Err(malformed(format!("invalid frontend message type {other}"))),
    };
    content.end()?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use polychron_base::random::Random;

    use super::*;

    fn samples() -> Vec<(u8, Vec<u8>)> {
        vec![
            (b'Q', b"SELECT 1\0".to_vec()),
            (b'P', b"s\0SELECT $1\0\0\x02\0\0\0\x17\0\0\0\0".to_vec()),
            (b'B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x2a\xff\xff\xff\xff\0\x01\0\x01".to_vec()),
            (b'D', b"Ss\0".to_vec()),
            (b'C', b"P\0".to_vec()),
            (b'E', b"p\0\0\0\0\x05".to_vec()),
            (b'H', Vec::new()),
            (b'S', Vec::new()),
            (b'X', Vec::new()),
            (b'd', b"1\ttwo\n".to_vec()),
            (b'c', Vec::new()),
            (b'f', b"no more\0".to_vec()),
        ]
    }

    #[test]
    fn messages_are_what_they_say() {
        for (kind, content) in samples() {
            let message = decode(Frame { kind, content: &content }).unwrap();
            match message {
                Message::Parse { name, text, types } => {
                    assert_eq!((name, text, types.iter().collect::<Vec<_>>()), ("s", "SELECT $1", vec![23, 0]));
                }
                Message::Bind(bind) => {
                    assert_eq!((bind.portal, bind.statement), ("p", "s"));
                    assert_eq!(bind.formats.iter().collect::<Vec<_>>(), [1]);
                    assert_eq!(bind.values.iter().collect::<Vec<_>>(), [Some(&[0, 0, 0, 42][..]), None]);
                    assert_eq!(bind.result_formats.iter().collect::<Vec<_>>(), [1]);
                }
                Message::Execute { portal, most } => assert_eq!((portal, most), ("p", 5)),
                Message::Describe(named) => assert_eq!(named, Named::Statement("s")),
                Message::Close(named) => assert_eq!(named, Named::Portal("")),
                _ => {}
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        // The content of CopyData is whatever it is, and Terminate ends a session whatever follows.
        for (kind, content) in samples().into_iter().filter(|(kind, _)| !matches!(kind, b'd' | b'X')) {
            for end in 0..content.len() {
                let refused = decode(Frame { kind, content: &content[..end] }).unwrap_err();
                assert_eq!(refused.state(), SqlState::PROTOCOL_VIOLATION, "{kind} {end}");
            }
            let longer = [&content[..], &[0]].concat();
            assert_eq!(decode(Frame { kind, content: &longer }).unwrap_err().state(), SqlState::PROTOCOL_VIOLATION);
        }
    }

    #[test]
    fn whatever_comes_is_decoded_or_refused() {
        let mut random = Random::from_seed(11);
        let samples = samples();
        for _ in 0..50_000 {
            let (kind, mut content) = samples[random.below(samples.len() as u64) as usize].clone();
            for _ in 0..random.below(4) {
                if content.is_empty() {
                    break;
                }
                let at = random.below(content.len() as u64) as usize;
                match random.below(3) {
                    0 => content[at] = random.next_u64() as u8,
                    1 => drop(content.remove(at)),
                    _ => content.insert(at, random.next_u64() as u8),
                }
            }
            match decode(Frame { kind, content: &content }) {
                Ok(Message::Bind(bind)) => {
                    let taken: usize = bind.values.iter().flatten().map(<[u8]>::len).sum();
                    assert!(taken <= content.len() && bind.values.count * 4 <= content.len());
                }
                Ok(_) => {}
                Err(error) => {
                    let codes = [SqlState::PROTOCOL_VIOLATION, SqlState::CHARACTER_NOT_IN_REPERTOIRE];
                    assert!(codes.contains(&error.state()), "{error}");
                }
            }
        }
    }

    #[test]
    fn any_kind_with_any_content_is_decoded_or_refused() {
        let mut random = Random::from_seed(12);
        for _ in 0..50_000 {
            let content: Vec<u8> = (0..random.below(30)).map(|_| random.below(6) as u8).collect();
            let _ = decode(Frame { kind: random.next_u64() as u8, content: &content });
        }
    }
}
