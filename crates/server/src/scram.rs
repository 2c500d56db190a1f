//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without channel binding.
//!
//! What the server keeps of passwords is `sql::Verifier`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polychron_sql::Verifier;

/// The name of the mechanism.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// Random bytes of the server's nonce.
const NONCE: usize = 18;

/// Why an exchange fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A message is not one of the mechanism.
    Malformed(&'static str),
    /// The client does not know the password.
    Wrong,
}

/// An exchange after the client's first message.
pub(crate) struct Exchange<'v> {
    verifier: &'v Verifier,
    /// What the client binds to, which is nothing; its second message repeats it.
    header: String,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl<'v> Exchange<'v> {
    /// Takes the client's first message. The answer goes to the client.
    pub(crate) fn begin(verifier: &'v Verifier, first: &str) -> Result<(Self, String), Failure> {
        let mut random = [0; NONCE];
        getrandom::fill(&mut random).map_err(|_| Failure::Malformed("no random bytes"))?;
        Self::begin_with(verifier, first, &STANDARD.encode(random))
    }

    fn begin_with(verifier: &'v Verifier, first: &str, own: &str) -> Result<(Self, String), Failure> {
        let mut parts = first.splitn(3, ',');
        let (binding, identity, bare) = (parts.next(), parts.next(), parts.next());
        match binding {
            Some("n" | "y") => {}
            Some(text) if text.starts_with("p=") => return Err(Failure::Malformed("channel binding needs TLS")),
            _ => return Err(Failure::Malformed("unexpected channel-binding flag")),
        }
        let (Some(""), Some(bare)) = (identity, bare) else {
            return Err(Failure::Malformed("no other identity can be taken"));
        };
        // The name is that of the start-up.
        let mut attributes = bare.split(',');
        let (name, nonce) = (attributes.next(), attributes.next());
        let is_named = name.is_some_and(|name| name.starts_with("n="));
        let (true, Some(nonce)) = (is_named, nonce.and_then(|nonce| nonce.strip_prefix("r="))) else {
            return Err(Failure::Malformed("the first message has no name or no nonce"));
        };
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::Malformed("the nonce is not printable"));
        }
        let nonce = format!("{nonce}{own}");
        let server_first = format!("r={nonce},s={},i={}", STANDARD.encode(verifier.salt()), verifier.iterations());
        let header = format!("{},,", binding.unwrap_or_default());
        let own = Self { verifier, header, client_first: bare.to_owned(), server_first: server_first.clone(), nonce };
        Ok((own, server_first))
    }

    /// Takes the client's second message, which shows that it knows the password. The answer shows the client that the server has the verifier.
    pub(crate) fn finish(&self, last: &str) -> Result<String, Failure> {
        let (without_proof, proof) =
            last.rsplit_once(",p=").ok_or(Failure::Malformed("the last message has no proof"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|binding| binding.strip_prefix("c="));
        if binding.and_then(|binding| STANDARD.decode(binding).ok()).as_deref() != Some(self.header.as_bytes()) {
            return Err(Failure::Malformed("the channel binding is not that of the first message"));
        }
        if attributes.next().and_then(|nonce| nonce.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(Failure::Malformed("the nonce is not that of the exchange"));
        }
        let proof = STANDARD.decode(proof).ok().and_then(|proof| <[u8; 32]>::try_from(proof).ok());
        let proof = proof.ok_or(Failure::Malformed("the proof is malformed"))?;
        let messages = format!("{},{},{without_proof}", self.client_first, self.server_first);
        if !self.verifier.is_proven(messages.as_bytes(), &proof) {
            return Err(Failure::Wrong);
        }
        Ok(format!("v={}", STANDARD.encode(self.verifier.signature(messages.as_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_exchange_is_that_of_the_standard() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::with("pencil", salt, 4096);
        let first = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let own = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let (exchange, answer) = Exchange::begin_with(&verifier, first, own).unwrap();
        assert_eq!(answer, format!("r=rOprNGfwEbeRWgbNEkqO{own},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        let last = format!("c=biws,r=rOprNGfwEbeRWgbNEkqO{own},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(exchange.finish(&last).unwrap(), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let wrong = format!("c=biws,r=rOprNGfwEbeRWgbNEkqO{own},p=eHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(exchange.finish(&wrong).unwrap_err(), Failure::Wrong);
        let other = format!("c=eSws,r=rOprNGfwEbeRWgbNEkqO{own},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert!(matches!(exchange.finish(&other), Err(Failure::Malformed(_))));
        for end in 0..last.len() {
            assert!(exchange.finish(&last[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn first_messages_are_looked_at() {
        let verifier = Verifier::of_nobody(b"secret", "nobody");
        let wrong = ["", "n", "n,,", "n,,n=a", "n,,r=b,n=a", "p=tls-unique,,n=a,r=b", "n,a=b,n=a,r=b", "n,,n=a,r="];
        for first in wrong {
            assert!(Exchange::begin(&verifier, first).is_err(), "{first}");
        }
        assert!(Exchange::begin(&verifier, "y,,n=,r=abc").is_ok());
    }
}
