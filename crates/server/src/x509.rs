//! What is read of certificates: what proofs are bound to, and who a client is.
//!
//! Proofs are bound to the hash of the server's certificate (`tls-server-end-point`, RFC 5929), so that nobody between passes them on. TLS has verified what
//! is read of a client's.

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The type of binding that is supported.
pub(crate) const END_POINT: &str = "tls-server-end-point";

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
/// The version of a certificate, which the first one leaves out.
const VERSION: u8 = 0xa0;

/// The hash of a certificate, by the function with which it is signed, but none weaker than SHA-256. `None`: the standard names no function for such a signature,
/// or clients do not find it (Ed25519, RSASSA-PSS).
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // The names of signatures without the parts that they share: PKCS #1, and ECDSA.
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let signature = signature(certificate)?;
    let sha256 = || Some(Sha256::digest(certificate).to_vec());
    let sha384 = || Some(Sha384::digest(certificate).to_vec());
    let sha512 = || Some(Sha512::digest(certificate).to_vec());
    match (signature.strip_prefix(RSA), signature.strip_prefix(ECDSA)) {
        // MD5, SHA-1 and SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => sha256(),
        (Some([12]), _) | (_, Some([3, 3])) => sha384(),
        (Some([13]), _) | (_, Some([3, 4])) => sha512(),
        _ => None,
    }
}

/// The name of the algorithm with which a certificate is signed.
fn signature(certificate: &[u8]) -> Option<&[u8]> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_signed, rest) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    element(algorithm, OBJECT).map(|(name, _)| name)
}

/// The common name of whom a certificate is for. `None`: it has none, or several.
pub(crate) fn common_name(certificate: &[u8]) -> Option<&str> {
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(whole, SEQUENCE)?;
    rest = element(rest, VERSION).map_or(rest, |(_, rest)| rest);
    // Number, signature, issuer and validity.
    for kind in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = element(rest, kind)?.1;
    }
    let (mut subject, _) = element(rest, SEQUENCE)?;
    let mut found = None;
    while !subject.is_empty() {
        let (mut names, next) = element(subject, SET)?;
        subject = next;
        while !names.is_empty() {
            let (name, next) = element(names, SEQUENCE)?;
            names = next;
            let (attribute, value) = element(name, OBJECT)?;
            if attribute == COMMON_NAME {
                let (text, _) = element(value, UTF8).or_else(|| element(value, PRINTABLE))?;
                let text = str::from_utf8(text).ok()?;
                if found.replace(text).is_some() {
                    return None;
                }
            }
        }
    }
    found
}

/// The content of the element of DER at the beginning of these bytes, and what follows it.
fn element(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    if head[0] != kind {
        return None;
    }
    let (length, rest) = match head[1] {
        short @ ..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SignatureAlgorithm};

    use super::*;

    fn certificate(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_function_is_that_of_the_signature() {
        let own = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(end_point(&own).unwrap(), Sha256::digest(&own).to_vec());
        let own = certificate(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(end_point(&own).unwrap(), Sha384::digest(&own).to_vec());
        assert_eq!(end_point(&certificate(&rcgen::PKCS_ED25519)), None);
        // A signature with RSA is not made here, but its name is read.
        let named = |last: u8| {
            let object = [OBJECT, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last];
            [&[SEQUENCE, 15, SEQUENCE, 0, SEQUENCE, 11][..], &object].concat()
        };
        for (last, length) in [(5, 32), (11, 32), (12, 48), (13, 64)] {
            assert_eq!(end_point(&named(last)).unwrap().len(), length, "{last}");
        }
        assert_eq!(end_point(&named(10)), None);
    }

    #[test]
    fn what_is_cut_off_has_no_function() {
        let own = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        for end in 0..own.len() {
            assert_eq!(end_point(&own[..end]), None, "{end}");
        }
    }

    #[test]
    fn the_common_name_is_that_of_the_subject() {
        let named = |names: &[DnValue]| {
            let mut parameters = CertificateParams::new(Vec::new()).unwrap();
            parameters.distinguished_name = rcgen::DistinguishedName::new();
            parameters.distinguished_name.push(DnType::OrganizationName, "ann");
            for name in names {
                parameters.distinguished_name.push(DnType::CommonName, name.clone());
            }
            parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        let own = named(&[DnValue::Utf8String("bøb".to_owned())]);
        assert_eq!(common_name(&own), Some("bøb"));
        let printable = DnValue::PrintableString("bob".try_into().unwrap());
        assert_eq!(common_name(&named(&[printable])), Some("bob"));
        assert_eq!(common_name(&named(&[])), None);
        for end in 0..own.len() {
            assert_eq!(common_name(&own[..end]), None, "{end}");
        }
    }
}
