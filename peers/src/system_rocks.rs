//! RocksDB as the system has it: its library is loaded when the program runs, and of its C interface what is needed is declared here.

use std::ffi::{CStr, CString, c_char, c_uchar, c_void};
use std::path::Path;
use std::sync::Arc;

use libloading::Library;

use crate::Failure;
use crate::databases::{Client, Peer, Value};

/// Its name, as packages for developers install it.
const NAME: &str = "librocksdb.so";

/// Something of the library's.
type Handle = *mut c_void;
/// Where a function leaves its error, if there is one.
type Fault = *mut *mut c_char;

/// Functions of the library, and how they are found.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// They are there for as long as the library is loaded.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: these are the types of `rocksdb/c.h`, which is the same in all versions as far as this goes.
                $(let $name = unsafe { *library.get(stringify!($name).as_bytes())? };)*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    rocksdb_options_create() -> Handle;
    rocksdb_options_set_create_if_missing(Handle, c_uchar);
    rocksdb_options_destroy(Handle);
    rocksdb_open(Handle, *const c_char, Fault) -> Handle;
    rocksdb_close(Handle);
    rocksdb_writeoptions_create() -> Handle;
    rocksdb_writeoptions_set_sync(Handle, c_uchar);
    rocksdb_writeoptions_destroy(Handle);
    rocksdb_readoptions_create() -> Handle;
    rocksdb_readoptions_destroy(Handle);
    rocksdb_writebatch_create() -> Handle;
    rocksdb_writebatch_put(Handle, *const c_char, usize, *const c_char, usize);
    rocksdb_writebatch_destroy(Handle);
    rocksdb_write(Handle, Handle, Handle, Fault);
    rocksdb_get(Handle, Handle, *const c_char, usize, *mut usize, Fault) -> *mut c_char;
    rocksdb_free(*mut c_void);
}

/// An open database, and the options that all of its clients have.
struct Open {
    functions: Functions,
    database: Handle,
    writing: Handle,
    reading: Handle,
}

// SAFETY: RocksDB lets all threads use a database and its options at a time; nothing here is changed behind the opening.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

#[derive(Clone)]
pub struct SystemRocks(Arc<Open>);

impl SystemRocks {
    /// A new database; `None` if the system has no such library.
    pub fn open(path: &Path) -> Result<Option<Self>, Failure> {
        // SAFETY: loading it runs nothing but its own constructors.
        let Ok(library) = (unsafe { Library::new(NAME) }) else { return Ok(None) };
        let functions = Functions::of(library)?;
        let name = CString::new(path.to_str().ok_or("the path is not UTF-8")?)?;
        // SAFETY: the options are made here and destroyed behind their only use; the name ends with a zero.
        let database = unsafe {
            let options = (functions.rocksdb_options_create)();
            (functions.rocksdb_options_set_create_if_missing)(options, 1);
            let opened = functions.checked(|fault| (functions.rocksdb_open)(options, name.as_ptr(), fault));
            (functions.rocksdb_options_destroy)(options);
            opened?
        };
        // SAFETY: these functions take what the ones before have made. Batches of threads that write at one time share a sync.
        let (writing, reading) = unsafe {
            let writing = (functions.rocksdb_writeoptions_create)();
            (functions.rocksdb_writeoptions_set_sync)(writing, 1);
            (writing, (functions.rocksdb_readoptions_create)())
        };
        Ok(Some(Self(Arc::new(Open { functions, database, writing, reading }))))
    }
}

impl Functions {
    /// Calls a function that may leave an error.
    fn checked<T>(&self, call: impl FnOnce(Fault) -> T) -> Result<T, Failure> {
        let mut fault = std::ptr::null_mut();
        let answer = call(&raw mut fault);
        if fault.is_null() {
            return Ok(answer);
        }
        // SAFETY: an error is a text that ends with a zero and is the caller's to free.
        let text = unsafe {
            let text = CStr::from_ptr(fault).to_string_lossy().into_owned();
            (self.rocksdb_free)(fault.cast());
            text
        };
        Err(text.into())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: nobody else has them now.
        unsafe {
            (self.functions.rocksdb_writeoptions_destroy)(self.writing);
            (self.functions.rocksdb_readoptions_destroy)(self.reading);
            (self.functions.rocksdb_close)(self.database);
        }
    }
}

impl Peer for SystemRocks {
    fn name(&self) -> &'static str {
        "RocksDB, the system's"
    }

    fn client(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

impl Client for SystemRocks {
    fn write(&mut self, keys: &[u64], value: &Value) -> Result<(), Failure> {
        let Open { functions, database, writing, .. } = &*self.0;
        // SAFETY: the batch copies keys and values, and is destroyed behind its only write.
        unsafe {
            let batch = (functions.rocksdb_writebatch_create)();
            for key in keys.iter().map(|key| key.to_be_bytes()) {
                let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
                (functions.rocksdb_writebatch_put)(batch, key, size_of::<u64>(), value, size_of::<Value>());
            }
            let written = functions.checked(|fault| (functions.rocksdb_write)(*database, *writing, batch, fault));
            (functions.rocksdb_writebatch_destroy)(batch);
            written
        }
    }

    fn read(&mut self, key: u64) -> Result<Option<Value>, Failure> {
        let Open { functions, database, reading, .. } = &*self.0;
        let (key, mut bytes) = (key.to_be_bytes(), 0);
        // SAFETY: the key has so many bytes, and so many as it says are in what it answers, which is the caller's to free.
        unsafe {
            let (key, length) = (key.as_ptr().cast(), key.len());
            let get = |fault| (functions.rocksdb_get)(*database, *reading, key, length, &raw mut bytes, fault);
            let found = functions.checked(get)?;
            if found.is_null() {
                return Ok(None);
            }
            let value = std::slice::from_raw_parts(found.cast::<u8>(), bytes).try_into();
            (functions.rocksdb_free)(found.cast());
            Ok(Some(value?))
        }
    }
}
