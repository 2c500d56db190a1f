//! What a client of HTTP asks, and whether it may.

use sha2::{Digest as _, Sha256};

/// The longest head of a request, in bytes.
pub(super) const LONGEST_HEAD: usize = 8 << 10;
/// The longest content of one.
pub(super) const LONGEST_BODY: usize = 1 << 10;
/// The most headers of one.
const HEADERS: usize = 64;
/// What a page has to say that ends a transaction: no page of another origin can without being asked first, and then the answer is no.
const MARK: &str = "x-polychron";

/// A request, as far as anything here looks at it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    host: Option<String>,
    origin: Option<String>,
    site: Option<String>,
    authorization: Option<String>,
    is_marked: bool,
    is_json: bool,
    pub(super) body: usize,
}

/// How far the bytes of a request go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    More,
    /// With the length of the head.
    Head(Box<Request>, usize),
    /// The status that is the answer.
    Wrong(u16),
}

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Parsed::More,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Wrong(431),
        Err(httparse::Error::Version) => return Parsed::Wrong(505),
        Err(_) => return Parsed::Wrong(400),
    };
    let target = head.path.unwrap_or_default();
    let mut request = Request {
        method: head.method.unwrap_or_default().to_owned(),
        path: target.split_once('?').map_or(target, |(path, _)| path).to_owned(),
        ..Request::default()
    };
    let mut has_length = false;
    for header in &*head.headers {
        let Ok(value) = str::from_utf8(header.value) else { return Parsed::Wrong(400) };
        let value = value.trim().to_owned();
        let name = header.name.to_ascii_lowercase();
        let known = match &*name {
            "host" => &mut request.host,
            "origin" => &mut request.origin,
            "sec-fetch-site" => &mut request.site,
            "authorization" => &mut request.authorization,
            "transfer-encoding" => return Parsed::Wrong(501),
            "content-length" => match value.parse() {
                Ok(length) if !has_length && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (request.body, has_length) = (length, true);
                    continue;
                }
                _ => return Parsed::Wrong(400),
            },
            "content-type" => {
                request.is_json = value.split(';').next().is_some_and(|of| of.trim() == "application/json");
                continue;
            }
            _ => {
                request.is_marked |= name == MARK;
                continue;
            }
        };
        // Of two, nobody knows which one counts.
        if known.replace(value).is_some() {
            return Parsed::Wrong(400);
        }
    }
    if request.body > LONGEST_BODY { Parsed::Wrong(413) } else { Parsed::Head(Box::new(request), length) }
}

/// Whether two secrets are the same, without telling by the time where they differ.
fn is_same(known: &[u8], given: &[u8]) -> bool {
    let (known, given) = (Sha256::digest(known), Sha256::digest(given));
    known.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

impl Request {
    /// Whether it may be answered: it knows the password; or there is none, and the name of the server that it was sent to is one of this machine, so that no page
    /// elsewhere has given its own name our address.
    pub(super) fn check(&self, password: Option<&str>) -> Result<(), u16> {
        use base64::Engine as _;
        let Some(host) = &self.host else { return Err(400) };
        let Some(password) = password else {
            let name = if host.starts_with('[') {
                host.split_inclusive(']').next().unwrap_or_default()
            } else {
                host.split(':').next().unwrap_or_default()
            };
            let is_own = ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| name.eq_ignore_ascii_case(own));
            return if is_own { Ok(()) } else { Err(421) };
        };
        let given = self.authorization.as_deref().and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic")).map(|(_, value)| value.trim());
        let given = given.and_then(|value| base64::engine::general_purpose::STANDARD.decode(value).ok());
        let given = given.and_then(|pair| pair.iter().position(|byte| *byte == b':').map(|at| pair[at + 1..].to_vec()));
        if given.is_some_and(|given| is_same(password.as_bytes(), &given)) { Ok(()) } else { Err(401) }
    }

    /// Whether it may change something: a page of another origin has not sent it.
    pub(super) fn check_own(&self) -> Result<(), u16> {
        let host = self.host.as_deref().unwrap_or_default();
        let is_own = |origin: &String| origin.strip_prefix("http://").is_some_and(|own| own == host);
        let is_same_origin = self.origin.as_ref().is_none_or(is_own);
        let is_same_site = self.site.as_ref().is_none_or(|site| site == "same-origin");
        match () {
            () if !(is_same_origin && is_same_site && self.is_marked) => Err(403),
            () if !self.is_json => Err(415),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Box<Request> {
        match parse(text.as_bytes()) {
            Parsed::Head(request, length) if length == text.len() => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_read_whole_or_not() {
        let text = "POST /end?x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        assert_eq!((head(text).path.as_str(), head(text).body), ("/end", 3));
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), Parsed::More, "{end}");
        }
        let status = |text: &str| if let Parsed::Wrong(status) = parse(text.as_bytes()) { status } else { 0 };
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n"), 413);
        assert_eq!(status("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
        assert_eq!(status("GET / HTTP/3.0\r\n\r\n"), 505);
        assert_eq!(status("\u{16}\u{3}\u{1}\r\n\r\n"), 400);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(LONGEST_HEAD))), 431);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS + 1))), 431);
    }

    #[test]
    fn names_of_other_machines_are_refused() {
        let check = |host: &str| head(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).check(None);
        assert!(["localhost:1", "LOCALHOST", "127.0.0.1:80", "[::1]:80"].iter().all(|host| check(host).is_ok()));
        assert!(
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil", ""].iter().all(|host| check(host).is_err())
        );
        assert_eq!(head("GET / HTTP/1.1\r\n\r\n").check(None), Err(400));
    }

    #[test]
    fn passwords_are_looked_at() {
        let check = |value: &str| {
            head(&format!("GET / HTTP/1.1\r\nHost: any\r\nAuthorization: {value}\r\n\r\n")).check(Some("a:b"))
        };
        // `x:a:b`, `x:a` and `a:b`.
        assert_eq!([check("Basic eDphOmI="), check("basic eDphOmI=")], [Ok(()), Ok(())]);
        assert!(["Basic eDph", "Basic YTpi", "Basic ?", "Bearer eDphOmI=", ""].iter().all(|it| check(it) == Err(401)));
    }

    #[test]
    fn other_pages_end_nothing() {
        let check = |more: &str| head(&format!("POST /end HTTP/1.1\r\nHost: localhost:1\r\n{more}\r\n")).check_own();
        let (mark, json) = ("X-Polychron: 1\r\n", "Content-Type: application/json\r\n");
        assert_eq!(check(&format!("{mark}{json}")), Ok(()));
        assert_eq!(
            check(&format!("{mark}{json}Origin: http://localhost:1\r\nSec-Fetch-Site: same-origin\r\n")),
            Ok(())
        );
        assert_eq!(check(&format!("{mark}{json}Origin: http://localhost:2\r\n")), Err(403));
        assert_eq!(check(&format!("{mark}{json}Origin: null\r\n")), Err(403));
        assert_eq!(check(&format!("{mark}{json}Sec-Fetch-Site: cross-site\r\n")), Err(403));
        assert_eq!(check(json), Err(403));
        assert_eq!(check(&format!("{mark}Content-Type: text/plain\r\n")), Err(415));
    }
}
