//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), the server's side.
//!
//! What the server keeps of passwords is `sql::Verifier`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polychron_sql::Verifier;

use crate::x509::END_POINT;

/// The name of the mechanism.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// The one whose proofs are bound to the connection.
pub(crate) const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";
/// Random bytes of the server's nonce.
const NONCE: usize = 18;

/// Why an exchange fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A message is not one of the mechanism.
    Malformed(&'static str),
    /// The client was told that its proof cannot be bound to the connection, though it can.
    Downgraded,
    /// The proof is bound to another connection.
    Elsewhere,
    /// The client does not know the password.
    Wrong,
}

/// What a proof is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel<'c> {
    /// There is nothing to which it could be.
    None,
    /// Nothing, as the client has chosen.
    Offered,
    /// The certificate with this hash.
    Bound(&'c [u8]),
}

/// An exchange after the client's first message.
pub(crate) struct Exchange<'v> {
    verifier: &'v Verifier,
    /// What the client's second message binds to.
    header: Vec<u8>,
    is_bound: bool,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl<'v> Exchange<'v> {
    /// Takes the client's first message. The answer goes to the client.
    pub(crate) fn begin(verifier: &'v Verifier, channel: Channel<'_>, first: &str) -> Result<(Self, String), Failure> {
        let mut random = [0; NONCE];
        getrandom::fill(&mut random).map_err(|_| Failure::Malformed("no random bytes"))?;
        Self::begin_with(verifier, channel, first, &STANDARD.encode(random))
    }

    fn begin_with(
        verifier: &'v Verifier,
        channel: Channel<'_>,
        first: &str,
        own: &str,
    ) -> Result<(Self, String), Failure> {
        let mut parts = first.splitn(3, ',');
        let (flag, identity, bare) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        check_flag(flag, channel)?;
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
        let is_bound = matches!(channel, Channel::Bound(_));
        let mut header = format!("{flag},,").into_bytes();
        if let Channel::Bound(hash) = channel {
            header.extend_from_slice(hash);
        }
        let client_first = bare.to_owned();
        let own = Self { verifier, header, is_bound, client_first, server_first: server_first.clone(), nonce };
        Ok((own, server_first))
    }

    /// Takes the client's second message, which shows that it knows the password. The answer shows the client that the server has the verifier.
    pub(crate) fn finish(&self, last: &str) -> Result<String, Failure> {
        let (without_proof, proof) =
            last.rsplit_once(",p=").ok_or(Failure::Malformed("the last message has no proof"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|binding| binding.strip_prefix("c="));
        let binding = binding.and_then(|binding| STANDARD.decode(binding).ok());
        let binding = binding.ok_or(Failure::Malformed("the last message has no channel binding"))?;
        if binding != self.header {
            let wrong = Failure::Malformed("the channel binding is not that of the first message");
            return Err(if self.is_bound { Failure::Elsewhere } else { wrong });
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

/// Compares what the client says of channel binding with the mechanism that it has chosen.
fn check_flag(flag: &str, channel: Channel<'_>) -> Result<(), Failure> {
    match (flag, channel) {
        ("n", Channel::None | Channel::Offered) | ("y", Channel::None) => Ok(()),
        // Somebody between has taken the other mechanism from what was offered.
        ("y", Channel::Offered) => Err(Failure::Downgraded),
        ("n" | "y", Channel::Bound(_)) => {
            let what = "the client selected SCRAM-SHA-256-PLUS, and binds to nothing";
            Err(Failure::Malformed(what))
        }
        (flag, channel) => match (flag.strip_prefix("p="), channel) {
            (Some(END_POINT), Channel::Bound(_)) => Ok(()),
            (Some(_), Channel::Bound(_)) => Err(Failure::Malformed("the type of channel binding is not supported")),
            (Some(_), Channel::Offered) => Err(Failure::Malformed("channel binding needs SCRAM-SHA-256-PLUS")),
            (Some(_), Channel::None) => Err(Failure::Malformed("channel binding needs TLS")),
            (None, _) => Err(Failure::Malformed("unexpected channel-binding flag")),
        },
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
        let (exchange, answer) = Exchange::begin_with(&verifier, Channel::None, first, own).unwrap();
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
            assert!(Exchange::begin(&verifier, Channel::None, first).is_err(), "{first}");
        }
        assert!(Exchange::begin(&verifier, Channel::None, "y,,n=,r=abc").is_ok());
    }

    #[test]
    fn a_proof_counts_for_its_connection_alone() {
        let verifier = Verifier::with("pencil", vec![7; 16], 4096);
        let bound = Channel::Bound(&[1, 2, 3]);
        let begin = |channel, first: &str| Exchange::begin_with(&verifier, channel, first, "own").map(|begun| begun.0);
        let exchange = begin(bound, "p=tls-server-end-point,,n=,r=abc").unwrap();
        let last = |header: &[u8], nonce: &str| {
            let proof = STANDARD.encode([0; 32]);
            exchange.finish(&format!("c={},r={nonce},p={proof}", STANDARD.encode(header))).unwrap_err()
        };
        let header = |hash: &[u8]| [b"p=tls-server-end-point,,", hash].concat();
        assert_eq!(last(&header(&[1, 2, 3]), "abcown"), Failure::Wrong);
        for other in [header(&[1, 2, 4]), header(&[1, 2]), header(&[1, 2, 3, 4]), b"n,,".to_vec(), Vec::new()] {
            assert_eq!(last(&other, "abcown"), Failure::Elsewhere);
        }
        for nonce in ["abc", "own", "abcowN", "abcownx"] {
            assert!(matches!(last(&header(&[1, 2, 3]), nonce), Failure::Malformed(_)), "{nonce}");
        }
        let refused = |channel, first: &str| begin(channel, first).map(|_| ()).unwrap_err();
        assert_eq!(refused(Channel::Offered, "y,,n=,r=abc"), Failure::Downgraded);
        assert!(begin(Channel::Offered, "n,,n=,r=abc").is_ok());
        for (channel, flag) in [
            (bound, "n"),
            (bound, "y"),
            (bound, "p=tls-unique"),
            (bound, "p="),
            (Channel::Offered, "p=tls-server-end-point"),
            (Channel::None, "p=tls-server-end-point"),
        ] {
            assert!(matches!(refused(channel, &format!("{flag},,n=,r=abc")), Failure::Malformed(_)), "{flag}");
        }
    }
}
