//! What is kept of a password (SCRAM-SHA-256, RFC 5802 and RFC 7677): it shows whether a client knows the password, and does not let anybody be that client.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// The name of the mechanism.
const MECHANISM: &str = "SCRAM-SHA-256";
/// How often a password is hashed for a new verifier, as PostgreSQL has it.
const ITERATIONS: u32 = 4096;
/// Verifiers with more are refused: each log-in of a client takes as long.
const MOST_ITERATIONS: u32 = 10_000_000;
const SALT: usize = 16;

/// Bytes of SHA-256.
type Key = [u8; 32];

/// The HMAC of a text.
fn keyed(key: &[u8], text: &[u8]) -> Key {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Key::default() };
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// The hash of bytes.
fn hashed(bytes: &[u8]) -> Key {
    Sha256::digest(bytes).into()
}

/// Where two keys differ.
#[must_use]
fn xor(mut a: Key, b: &Key) -> Key {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
    a
}

/// What is kept of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

/// Nothing of it is shown.
impl fmt::Debug for Verifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Verifier {
    /// The verifier of a password, with a salt that nothing else has.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(password: &str) -> Result<Self, getrandom::Error> {
        let mut salt = vec![0; SALT];
        getrandom::fill(&mut salt)?;
        Ok(Self::with(password, salt, ITERATIONS))
    }

    /// The verifier of a password with this salt.
    pub fn with(password: &str, salt: Vec<u8>, iterations: u32) -> Self {
        // What cannot be prepared is taken as it is, as clients do.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let mut block = keyed(prepared.as_bytes(), &[&salt[..], &1_u32.to_be_bytes()].concat());
        let mut salted = block;
        for _ in 1..iterations {
            block = keyed(prepared.as_bytes(), &block);
            salted = xor(salted, &block);
        }
        let stored_key = hashed(&keyed(&salted, b"Client Key"));
        let server_key = keyed(&salted, b"Server Key");
        Self { iterations, salt, stored_key, server_key }
    }

    /// One that no password fits, for a role that is not there: to a client it looks like that of a role. The same name has the same salt.
    pub fn of_nobody(secret: &[u8], role: &str) -> Self {
        let salt = keyed(secret, role.as_bytes())[..SALT].to_vec();
        Self {
            iterations: ITERATIONS,
            salt,
            stored_key: keyed(secret, b"nobody"),
            server_key: keyed(secret, b"nothing"),
        }
    }

    /// How often the password was hashed.
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// What the password was hashed with.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Whether a proof of these messages comes from a client that knows the password. The time does not tell where it differs.
    pub fn is_proven(&self, messages: &[u8], proof: &[u8; 32]) -> bool {
        let client_key = xor(*proof, &keyed(&self.stored_key, messages));
        xor(hashed(&client_key), &self.stored_key).iter().fold(0, |all, byte| all | byte) == 0
    }

    /// With which the server shows a client that it has the verifier.
    pub fn signature(&self, messages: &[u8]) -> [u8; 32] {
        keyed(&self.server_key, messages)
    }

    /// Reads a verifier as PostgreSQL writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (first, second) = rest.split_once('$')?;
        let (iterations, salt) = first.split_once(':')?;
        let (stored_key, server_key) = second.split_once(':')?;
        let key = |text: &str| Key::try_from(STANDARD.decode(text).ok()?).ok();
        let iterations = iterations.parse().ok().filter(|it| (1..=MOST_ITERATIONS).contains(it))?;
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?;
        Some(Self { iterations, salt, stored_key: key(stored_key)?, server_key: key(server_key)? })
    }

    /// The verifier as PostgreSQL writes it.
    pub fn text(&self) -> String {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        format!("{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_are_written_and_read() {
        let verifier = Verifier::with("secret", b"salt".to_vec(), 7);
        assert_eq!(Verifier::parse(&verifier.text()), Some(verifier.clone()));
        let text = verifier.text();
        for end in 0..text.len() - 1 {
            assert_eq!(Verifier::parse(&text[..end]), None, "{end}");
        }
        let (a, b) = (Verifier::of_nobody(b"x", "a"), Verifier::of_nobody(b"x", "b"));
        assert!(a == Verifier::of_nobody(b"x", "a") && a != b);
    }
}
