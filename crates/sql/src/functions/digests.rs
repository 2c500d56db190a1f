//! Digests of bytes.

use std::sync::LazyLock;

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Function, functions};
use crate::context::Context;
use crate::datum::Datum;

fn bytes<'a>(datum: Datum<'a>) -> &'a [u8] {
    match datum {
        Datum::Bytes(bytes) => bytes,
        Datum::Text(text) => text.as_bytes(),
        _ => unreachable!("bytes, or a text"),
    }
}

/// How far each step of a round turns its word: four numbers for each of the four rounds (RFC 1321).
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// What each step adds: the RFC's |sin(i + 1)| in 32 bits.
static CONSTANTS: LazyLock<[u32; 64]> =
    LazyLock::new(|| std::array::from_fn(|step| (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32));

/// MD5 (RFC 1321). It keeps no secrets; programs compare values by it.
fn md5(of: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut tail = of.chunks_exact(64).remainder().to_vec();
    tail.push(0x80);
    while tail.len() % 64 != 56 {
        tail.push(0);
    }
    tail.extend((of.len() as u64).wrapping_mul(8).to_le_bytes());
    for block in of.chunks_exact(64).chain(tail.chunks_exact(64)) {
        add_block(&mut state, block);
    }
    let mut digest = [0; 16];
    digest.chunks_exact_mut(4).zip(state).for_each(|(out, word)| out.copy_from_slice(&word.to_le_bytes()));
    digest
}

fn add_block(state: &mut [u32; 4], block: &[u8]) {
    let word = |at: usize| u32::from_le_bytes([block[4 * at], block[4 * at + 1], block[4 * at + 2], block[4 * at + 3]]);
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mixed, at) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(CONSTANTS[step]).wrapping_add(word(at));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4]));
    }
    for (own, new) in state.iter_mut().zip([a, b, c, d]) {
        *own = own.wrapping_add(new);
    }
}

fn in_hex<'a>(of: &[u8], context: &Context<'a>) -> Datum<'a> {
    let text: String = md5(of).iter().map(|byte| format!("{byte:02x}")).collect();
    Datum::Text(context.arena.alloc_str(&text))
}

fn digest<'a, D: Digest>(of: Datum<'a>, context: &Context<'a>) -> Datum<'a> {
    Datum::Bytes(context.arena.alloc_slice_copy(&D::digest(bytes(of))))
}

pub(super) const FUNCTIONS: &[Function] = functions! {
    "md5"(Text) -> Text = |it, context| Ok(in_hex(bytes(it[0]), context));
    "md5"(Bytea) -> Text = |it, context| Ok(in_hex(bytes(it[0]), context));
    "sha224"(Bytea) -> Bytea = |it, context| Ok(digest::<Sha224>(it[0], context));
    "sha256"(Bytea) -> Bytea = |it, context| Ok(digest::<Sha256>(it[0], context));
    "sha384"(Bytea) -> Bytea = |it, context| Ok(digest::<Sha384>(it[0], context));
    "sha512"(Bytea) -> Bytea = |it, context| Ok(digest::<Sha512>(it[0], context));
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The RFC's own, and lengths around the end of a block.
    #[test]
    fn md5_is_that_of_the_rfc() {
        let hex = |of: &str| md5(of.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex(&"1234567890".repeat(8)), "57edf4a22be3c955ac49da2e2107b67a");
        for (length, wanted) in [
            (55, "ef1772b6dff9a122358552954ad0df65"),
            (56, "3b0c8ac703f828b04c6c197006d17218"),
            (64, "014842d480b571495a4a0363793f7367"),
        ] {
            assert_eq!(hex(&"a".repeat(length)), wanted);
        }
    }
}
