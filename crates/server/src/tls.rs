//! TLS: a certificate, which can be read again, and the state of a connection between its bytes and what they mean.
//!
//! `rustls` touches no socket: bytes are handed to it and taken from it here. What it has decrypted lies in it until it is read, where no wait for the socket
//! sees it. So [`Secured::read`] asks the socket only once nothing is left there, and a session is silent only after a read that has found nothing.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerConnection, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, crypto};

use crate::error::ServerError;
use crate::files::contents;
use crate::x509;

/// The protocol's name in the negotiation of TLS.
const NAME: &[u8] = b"postgresql";

/// Where a certificate and its key lie, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that lead from it to the root.
    pub certificate: PathBuf,
    /// The key of the first one. No other account may read it, but the group where it belongs to root.
    pub key: PathBuf,
    /// Those who sign the certificates of clients, if clients may show some.
    pub client_roots: Option<PathBuf>,
}

/// A certificate that was read.
#[derive(Debug)]
pub(crate) struct Certificate {
    config: Arc<ServerConfig>,
    /// What clients bind their proofs to.
    end_point: Option<Arc<[u8]>>,
}

impl Certificate {
    fn read(files: &TlsFiles) -> Result<Self, ServerError> {
        let wrong = |path: &Path, what: &dyn std::fmt::Display| ServerError::Tls(path.to_owned(), what.to_string());
        let of_certificate = |what: &dyn std::fmt::Display| wrong(&files.certificate, what);
        let bytes = contents(&files.certificate).map_err(|error| of_certificate(&error))?;
        let all = CertificateDer::pem_slice_iter(&bytes)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| of_certificate(&error))?;
        let first = all.first().ok_or_else(|| of_certificate(&"there is no certificate in it"))?;
        let end_point = x509::end_point(first).map(Arc::from);
        if let Some(what) = is_readable_by_others(&files.key).map_err(|error| wrong(&files.key, &error))? {
            return Err(wrong(&files.key, &what));
        }
        let bytes = contents(&files.key).map_err(|error| wrong(&files.key, &error))?;
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| wrong(&files.key, &error))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| of_certificate(&error))?;
        let config = match &files.client_roots {
            None => config.with_no_client_auth(),
            Some(path) => config.with_client_cert_verifier(verifier(path).map_err(|error| wrong(path, &error))?),
        };
        let mut config = config.with_single_cert(all, key).map_err(|error| of_certificate(&error))?;
        config.alpn_protocols = vec![NAME.to_vec()];
        // Sessions are not resumed: connections are long, and a ticket outlives the certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), end_point })
    }
}

/// What verifies the certificates of clients that show one.
fn verifier(roots: &Path) -> Result<Arc<dyn ClientCertVerifier>, Box<dyn std::error::Error>> {
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&contents(roots)?) {
        store.add(root?)?;
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider);
    Ok(verifier.allow_unauthenticated().build()?)
}

/// What is wrong with the rights of a key's file, if anything is.
fn is_readable_by_others(path: &Path) -> io::Result<Option<&'static str>> {
    let file = fs::metadata(path)?;
    let (most, what) = match file.uid() {
        0 => (0o640, "it belongs to root, and others than its group may read or change it: 0640 is the most"),
        _ => (0o600, "other accounts may read or change it: 0600 is the most"),
    };
    Ok((file.mode() & 0o777 & !most != 0).then_some(what))
}

/// The certificate of a server. Connections keep the one with which they have begun.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<Certificate>>,
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Result<Self, ServerError> {
        let current = RwLock::new(Arc::new(Certificate::read(&files)?));
        Ok(Self { files, current })
    }

    /// Reads the files again. Where that fails, the certificate stays.
    pub(crate) fn reload(&self) -> Result<(), ServerError> {
        let new = Arc::new(Certificate::read(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Whether clients may show certificates.
    pub(crate) fn takes_certificates(&self) -> bool {
        self.files.client_roots.is_some()
    }

    pub(crate) fn current(&self) -> Arc<Certificate> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The state of a connection's TLS. One thread reads and writes, so nothing waits for the lock.
#[derive(Debug)]
pub(crate) struct Secured {
    state: Mutex<ServerConnection>,
    end_point: Option<Arc<[u8]>>,
}

impl Secured {
    /// Begins, with bytes of the client that have come already.
    pub(crate) fn begin<S: Read + Write>(
        certificate: &Certificate,
        mut early: &[u8],
        stream: &mut S,
    ) -> io::Result<Self> {
        let mut state = ServerConnection::new(certificate.config.clone()).map_err(io::Error::other)?;
        while !early.is_empty() {
            if state.read_tls(&mut early)? == 0 {
                break;
            }
            advance(&mut state, stream)?;
        }
        Ok(Self { state: Mutex::new(state), end_point: certificate.end_point.clone() })
    }

    fn state(&self) -> MutexGuard<'_, ServerConnection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is there. 0: what has come is a part of a record, or of the handshake. `None`: the end.
    pub(crate) fn read<S: Read + Write>(&self, stream: &mut S, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = self.state();
        match decrypted(&mut state, buffer)? {
            Some(0) => {}
            other => return Ok(other),
        }
        if state.read_tls(stream)? == 0 {
            return Ok(None);
        }
        advance(&mut state, stream)?;
        decrypted(&mut state, buffer)
    }

    /// Writes everything, however slowly the client reads.
    pub(crate) fn write_all<S: Read + Write>(&self, stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        while !bytes.is_empty() {
            // It takes some records at once, and more once those are written.
            let taken = state.writer().write(bytes)?;
            if taken == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            bytes = &bytes[taken..];
            flush(&mut state, stream)?;
        }
        Ok(())
    }

    /// Tells the client that nothing follows.
    pub(crate) fn close<S: Read + Write>(&self, stream: &mut S) {
        let mut state = self.state();
        state.send_close_notify();
        // The client may be gone.
        let _ = flush(&mut state, stream);
    }

    /// Whether the client has named the protocol in the negotiation of TLS.
    pub(crate) fn is_named(&self) -> bool {
        self.state().alpn_protocol() == Some(NAME)
    }

    /// The common name of the certificate that the client has shown, if it has: TLS has verified it.
    pub(crate) fn common_name(&self) -> Option<String> {
        let state = self.state();
        let certificates = state.peer_certificates()?;
        x509::common_name(certificates.first()?).map(str::to_owned)
    }

    /// Whether the client has shown a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.state().peer_certificates().is_some_and(|all| !all.is_empty())
    }

    /// What a proof can be bound to.
    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }
}

/// What was decrypted and not yet read; 0: nothing, and more may come. `None`: the client has said that nothing follows.
fn decrypted(state: &mut ServerConnection, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match state.reader().read(buffer) {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Some(0)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Does what the bytes say that have come. The client is told what it has done wrong.
fn advance<S: Read + Write>(state: &mut ServerConnection, stream: &mut S) -> io::Result<()> {
    let done = state.process_new_packets();
    let flushed = flush(state, stream);
    done.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    flushed
}

fn flush<S: Read + Write>(state: &mut ServerConnection, stream: &mut S) -> io::Result<()> {
    while state.wants_write() {
        match state.write_tls(stream) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            written => drop(written?),
        }
    }
    Ok(())
}
