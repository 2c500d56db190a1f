//! Databases that are opened to be read alone.

use std::path::Path;
use std::sync::Arc;

use polychron_engine::redo::Journal;
use polychron_engine::{Error, Protocol};
use polychron_log::disk::{Cause, Directory, Disk, Files};
use polychron_log::{Progress, Reading};

use crate::durable::{Told, load};
use crate::refusing::Refusing;
use crate::{Builder, Database};

impl<P: Protocol> Builder<P> {
    /// Reads the database at a path into memory, and writes nothing there: no right to write is needed, nor a medium that can be written. What is changed is refused
    /// ([`Error::OpenedReadOnly`]), rows when their transaction commits. The files are no longer in use when this returns: others may open the
    /// database then, and what they change is not seen here.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("bank");
    /// # use polychron::Database;
    /// Database::builder().small().open(&path)?.close()?;
    /// let database = Database::builder().small().open_read_only(&path)?;
    /// # Ok::<(), polychron::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::open_existing`], and [`Error::Options`] with [`Builder::serve_standbys`]; [`Error::InUse`] while somebody has the database open to write.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Database<P>, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        self.reading(&name, || {
            Directory::open(path).map(Files::new).map_err(|cause| match cause {
                Cause::NotFound => Error::no_database(name.clone(), cause.to_string()),
                cause => Error::inaccessible(name.clone(), cause.to_string()),
            })
        })
    }

    /// The same on any disk.
    #[doc(hidden)]
    pub fn open_read_only_on<D: Disk + Clone>(self, files: &Files<D>) -> Result<Database<P>, Error> {
        self.reading("a disk", || Ok(files.clone()))
    }

    fn reading<D: Disk + Clone>(
        self,
        path: &str,
        files: impl FnOnce() -> Result<Files<D>, Error>,
    ) -> Result<Database<P>, Error> {
        self.on_disk.refuse_standbys("a database that is read alone has no log that standbys could follow")?;
        let threads = self.recovering_threads();
        let mut options = self.checked()?;
        let refusing = Arc::new(Refusing::new(path));
        options.common.journal = Journal::new(Arc::clone(&refusing) as _);
        let database = Database::with_options(options)?;
        let told = Told::new(&database);
        let report = |progress: Progress| told.report(progress);
        let mut reading = Reading::begin(&files()?, path, threads, &report)?;
        load(&database, path.to_owned(), &mut reading, &told)?;
        let tables = reading.catalog().clone();
        reading.end()?;
        refusing.begin(&tables);
        Ok(database)
    }
}
