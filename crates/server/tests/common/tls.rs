//! New certificates, and clients that speak TLS.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polychron_server::{Credentials, Options, Server, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, crypto};

use super::{Db, Raw, server_with};

/// Who signs certificates, and a folder for files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
    pub(crate) folder: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::that_signs_with(&rcgen::PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn that_signs_with(algorithm: &'static rcgen::SignatureAlgorithm) -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        // Verifiers tell certificates apart by these names.
        parameters.distinguished_name.push(DnType::CommonName, "root");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("root.pem"), certificate.pem()).unwrap();
        Self { issuer: Issuer::new(parameters, key), root: certificate.der().clone(), folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate for these names, changed as the caller likes.
    pub(crate) fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TlsFiles {
        self.sign_as("server", names, change)
    }

    /// The same into files of this name.
    pub(crate) fn sign_as(&self, file: &str, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TlsFiles {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, file);
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let files = TlsFiles {
            certificate: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
            client_roots: None,
        };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        write_key(&files.key, &key.serialize_pem(), 0o600);
        files
    }

    /// A server with a certificate of this authority.
    pub(crate) fn server_with(&self, credentials: Credentials, change: impl FnOnce(&mut Options)) -> Server<Db> {
        let files = self.sign(&["localhost", "127.0.0.1"], |_| {});
        server_with(credentials, |options| {
            options.tls = Some(files);
            change(options);
        })
    }

    /// A server that admits everybody.
    pub(crate) fn server(&self) -> Server<Db> {
        self.server_with(Credentials::Trust, |_| {})
    }

    /// A client's side of TLS, of these versions, that names these protocols.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion], names: &[&str]) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let config = config.with_protocol_versions(versions).unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }

    /// A client over TLS, which has asked for it and says nothing more.
    pub(crate) fn open(&self, server: &Server<Db>) -> Secure {
        asked(server, self.client(rustls::ALL_VERSIONS, &[]))
    }

    /// A client over TLS with a session.
    pub(crate) fn ready(&self, server: &Server<Db>) -> Secure {
        let mut own = self.open(server);
        own.start();
        own
    }
}

pub(crate) fn write_key(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A client over TLS that says what it likes.
pub(crate) type Secure = Raw<StreamOwned<ClientConnection, TcpStream>>;

/// What asks for TLS.
pub(crate) const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Asks for TLS, and speaks it.
pub(crate) fn asked(server: &Server<Db>, client: ClientConnection) -> Secure {
    let mut raw = Raw::open(server);
    raw.send(&REQUEST);
    assert_eq!(raw.byte(), Some(b'S'));
    Raw { stream: StreamOwned::new(client, raw.stream) }
}

impl Secure {
    /// Encrypts these bytes, and keeps the result.
    pub(crate) fn encrypted(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        self.stream.conn.writer().write_all(bytes).unwrap();
        while self.stream.conn.wants_write() {
            self.stream.conn.write_tls(&mut records).unwrap();
        }
        records
    }

    /// Completes the handshake.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        while self.stream.conn.is_handshaking() {
            self.stream.conn.complete_io(&mut self.stream.sock)?;
        }
        Ok(())
    }
}
