//! How clients show who they are, and the password of the role `postgres` until that has another one.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use polychron_sql::Verifier;

use crate::error::ServerError;
use crate::files::text_of;

/// How clients show who they are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Credentials {
    /// Whoever comes is admitted.
    Trust,
    /// By the password; on the unix socket the account of the server needs none.
    Password(Password),
}

/// What a server keeps of a password, from which nobody learns it.
#[derive(Clone, Debug)]
pub struct Password {
    pub(crate) verifier: Verifier,
    /// From which the salts of roles that are not there are made.
    pub(crate) secret: [u8; 32],
}

/// How many letters a password of ours has: 120 bits.
const LETTERS: usize = 24;

fn no_randomness(error: getrandom::Error) -> ServerError {
    ServerError::System(format!("the system gives no random bytes: {error}"))
}

/// A password that nobody can guess.
///
/// # Errors
/// The system gives no random bytes.
pub fn new_password() -> Result<String, ServerError> {
    // Without letters that look alike; 32 of them, so that each is as likely.
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut random = [0; LETTERS];
    getrandom::fill(&mut random).map_err(no_randomness)?;
    Ok(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

impl Password {
    fn of(verifier: Verifier) -> Result<Self, ServerError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(no_randomness)?;
        Ok(Self { verifier, secret })
    }

    /// Of a password in clear text.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(password: &str) -> Result<Self, ServerError> {
        Verifier::new(password).map_err(no_randomness).and_then(Self::of)
    }

    /// Of the first line of a file.
    ///
    /// # Errors
    /// It cannot be read, or is empty.
    pub fn of_file(path: &Path) -> Result<Self, ServerError> {
        let wrong = |what: String| ServerError::Credentials(path.to_owned(), what);
        let text = text_of(path).map_err(|error| wrong(error.to_string()))?;
        match text.lines().next() {
            None | Some("") => Err(wrong("its first line has no password".to_owned())),
            Some(password) => Self::new(password),
        }
    }

    /// What [`Password::keep`] has written; `None`: there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn kept(path: &Path) -> Result<Option<Self>, ServerError> {
        let wrong = |what: String| ServerError::Credentials(path.to_owned(), what);
        match text_of(path) {
            Ok(text) => {
                let verifier = Verifier::parse(text.trim_end());
                let verifier = verifier.ok_or_else(|| wrong("it is no verifier of a password".to_owned()))?;
                Self::of(verifier).map(Some)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    /// Writes a new file from which [`Password::kept`] makes it again, and nobody the password. Its account alone may read it.
    ///
    /// # Errors
    /// It cannot be written, or is there.
    pub fn keep(&self, path: &Path) -> Result<(), ServerError> {
        let written = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            writeln!(file, "{}", self.verifier.text())?;
            file.sync_all()
        };
        written().map_err(|error| ServerError::Credentials(path.to_owned(), error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_the_password_and_does_not_show_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kept");
        assert!(Password::kept(&path).unwrap().is_none());
        let password = new_password().unwrap();
        let own = Password::new(&password).unwrap();
        own.keep(&path).unwrap();
        assert!(own.keep(&path).is_err(), "nothing is overwritten");
        assert_eq!(Password::kept(&path).unwrap().unwrap().verifier, own.verifier);
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&password));
        std::fs::write(&path, "SCRAM-SHA-256$4096:").unwrap();
        assert!(Password::kept(&path).is_err());
    }
}
