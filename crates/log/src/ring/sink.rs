//! Bytes in atomic words, which one thread writes while another one reads those before.

use polychron_sync::atomic::{AtomicU64, Ordering};

use crate::codec::Sink;

/// Writes bytes one after the other into words of a ring.
///
/// All accesses are relaxed: the ring's latch orders them.
pub(super) struct WordSink<'r> {
    words: &'r [AtomicU64],
    /// The word that is written next, counted since the ring began.
    at: u64,
    /// The bytes of that word which are there already, and zeroes.
    word: u64,
    /// How many bits of it these are, below 64.
    bits: u32,
    start: u64,
}

impl<'r> WordSink<'r> {
    /// Goes on behind `bytes` bytes that begin at word `start`.
    #[inline]
    pub(super) fn resume(words: &'r [AtomicU64], start: u64, bytes: usize) -> Self {
        let (at, bits) = (start + (bytes / 8) as u64, (bytes % 8) as u32 * 8);
        let word = if bits == 0 { 0 } else { words[index(words, at)].load(Ordering::Relaxed) };
        Self { words, at, word, bits, start }
    }

    /// Stores what is left. Answers how many bytes there are.
    #[inline]
    pub(super) fn finish(self) -> usize {
        if self.bits > 0 {
            self.words[index(self.words, self.at)].store(self.word, Ordering::Relaxed);
        }
        (self.at - self.start) as usize * 8 + self.bits as usize / 8
    }

    #[inline]
    fn store(&mut self, word: u64) {
        self.words[index(self.words, self.at)].store(word, Ordering::Relaxed);
        self.at += 1;
    }
}

impl Sink for WordSink<'_> {
    #[inline]
    fn few(&mut self, word: u64, bytes: usize) {
        let filled = self.bits + 8 * bytes as u32;
        self.word |= word << self.bits;
        if filled < 64 {
            self.bits = filled;
        } else {
            self.store(self.word);
            self.word = rest(word, self.bits);
            self.bits = filled - 64;
        }
    }

    #[inline]
    fn words(&mut self, words: &[u64]) {
        let (bits, mut begun) = (self.bits, self.word);
        for word in words {
            self.store(begun | word << bits);
            begun = rest(*word, bits);
        }
        self.word = begun;
    }
}

/// The bits of a word that do not fit behind so many bits of another one: none, if there are none.
#[inline]
fn rest(word: u64, bits: u32) -> u64 {
    word >> 1 >> (63 - bits)
}

/// Where a word lies that is counted since the ring began. The length is a power of two.
#[inline]
pub(super) fn index(words: &[AtomicU64], at: u64) -> usize {
    at as usize & (words.len() - 1)
}

/// Appends bytes that begin at a word.
pub(super) fn copy_out(words: &[AtomicU64], start: u64, bytes: usize, into: &mut Vec<u8>) {
    let begun = into.len();
    into.resize(begun + bytes, 0);
    let (whole, rest) = into[begun..].as_chunks_mut::<8>();
    if !rest.is_empty() {
        let last = words[index(words, start + whole.len() as u64)].load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
    // They may go on at the beginning of the ring.
    let (before, from) = words.split_at(index(words, start));
    let (to, behind) = whole.split_at_mut(whole.len().min(from.len()));
    load(from, to);
    load(before, behind);
}

/// The first words, as many as there is room for.
#[inline]
fn load(words: &[AtomicU64], into: &mut [[u8; 8]]) {
    words.iter().zip(into).for_each(|(word, to)| *to = word.load(Ordering::Relaxed).to_le_bytes());
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use polychron_base::random::Random;

    use super::*;
    use crate::codec::put_varint;

    /// The same calls on a ring and on a list, in parts that end anywhere and across the ring's end.
    #[test]
    fn words_have_the_bytes_that_a_list_would_have() {
        let mut random = Random::from_seed(1);
        for _ in 0..polychron_base::sizes::scaled(500, 5) {
            let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(random.next_u64())).collect();
            let start = random.below(1000);
            let (mut expected, mut bytes) = (Vec::new(), 0);
            while expected.len() < 400 {
                let mut sink = WordSink::resume(&words, start, bytes);
                for _ in 0..random.below(4) {
                    let value = random.next_u64() >> random.below(64);
                    match random.below(4) {
                        3 => {
                            let some = [value, !value, value];
                            [&mut sink as &mut dyn Sink, &mut expected].into_iter().for_each(|it| it.words(&some));
                        }
                        0 => {
                            let few = random.below(8) as usize + 1;
                            let value = value
                                .to_le_bytes()
                                .iter()
                                .take(few)
                                .rev()
                                .fold(0, |all, byte| all << 8 | u64::from(*byte));
                            [&mut sink as &mut dyn Sink, &mut expected].into_iter().for_each(|it| it.few(value, few));
                        }
                        1 => {
                            put_varint(&mut sink, value);
                            put_varint(&mut expected, value);
                        }
                        _ => {
                            let mut some = vec![0; random.below(20) as usize];
                            random.fill(&mut some);
                            [&mut sink as &mut dyn Sink, &mut expected].into_iter().for_each(|it| it.bytes(&some));
                        }
                    }
                }
                bytes = sink.finish();
                assert_eq!(bytes, expected.len());
            }
            let mut copied = vec![1];
            copy_out(&words, start, bytes, &mut copied);
            assert_eq!(copied[1..], expected);
        }
    }
}
