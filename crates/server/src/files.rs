//! Files that an operator names, and may change while the server runs.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The most bytes of a file that is read.
pub(crate) const LONGEST: u64 = 1 << 20;

/// What a file has. Nothing else is read, so that nobody waits for the other end of a pipe, or for the end of a device.
///
/// # Errors
/// It cannot be read, is no plain file, or has more than [`LONGEST`] bytes.
pub(crate) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let at_once = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(at_once).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it has more than {LONGEST} bytes")));
    }
    Ok(bytes)
}

/// What a plain file of at most a mebibyte has as text: of a password, for example. Nobody waits for the other end of a pipe.
///
/// # Errors
/// It cannot be read, is no plain file, is longer, or has no text.
pub fn text_of(path: &Path) -> io::Result<String> {
    String::from_utf8(contents(path)?).map_err(|_| io::Error::other("it has no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_of_bounded_length_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(contents(&path).unwrap(), b"text");
        std::fs::write(&path, vec![0; LONGEST as usize + 1]).unwrap();
        for wrong in [&*path, directory.path(), Path::new("/dev/zero"), Path::new("/nothing")] {
            assert!(contents(wrong).is_err(), "{}", wrong.display());
        }
    }
}
