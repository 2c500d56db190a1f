//! How a new standby comes to be: the files of its primary's checkpoint and log are sent as they are, and its manifests are written last.

use std::collections::BTreeSet;

use std::sync::Arc;

use polychron_base::clock::{Duration, SystemClock};
use polychron_engine::mutations::left_out;

use super::marker::{self, Marked};
use super::message::{Decoder, FileKind, Hello, Mark, Message, PIECE, Silence, encode, most_from_primary};
use super::sender::Source;
use super::{MOST_FILE, Trouble, refused};
use crate::DatabaseId;
use crate::backup;
use crate::checkpoint::{self, directory_of, run};
use crate::disk::{Access, BLOCK, Buffer, Cause, Disk, File, Files, Operation};
use crate::flush::flusher::Framed;
use crate::flush::pool::{DIRECTORY, path_of};
use crate::manifest::{self, Manifest, Manifests};
use crate::read::Cursor;
use crate::steps::ShipStep;

/// How often files are opened anew because a checkpoint was made meanwhile.
const TRIES: usize = 100;

/// A new standby that is sent files.
pub(super) struct Basing<D: Disk> {
    manifest: Vec<u8>,
    mark: Mark,
    items: Vec<Item<D>>,
    /// Which file is sent, and what was sent of it; `None`: not even its length.
    next: (usize, Option<u64>),
    sent: u64,
    is_over: bool,
}

/// A file that is sent. The handle keeps it, even if it is removed.
struct Item<D: Disk> {
    kind: FileKind,
    file: File<D::File>,
    bytes: u64,
    /// How much of it is sent; what is behind is not needed.
    content: u64,
    /// Of a log file, which may be used again meanwhile: its number and slot.
    log: Option<(u64, u32)>,
}

impl<D: Disk + Clone> Basing<D> {
    pub(super) fn begin(source: Source<'_, D>) -> Result<Self, Trouble> {
        // So that the log ends with a point, if transactions that are open do not prevent that.
        source.log.write_down();
        for _ in 0..TRIES {
            let (manifest, generation) = run::current_of(source.manifests);
            let mark = source.checkpoints.shared.last();
            let items = Self::items(source, &manifest, &source.log.framed());
            if run::current_of(source.manifests).1 == generation {
                let manifest = manifest::encode(&manifest, generation);
                return Ok(Self { manifest, mark, items: items?, next: (0, None), sent: 0, is_over: false });
            }
        }
        Err(Trouble::Lost("checkpoints are made all the time".to_owned()))
    }

    fn items(source: Source<'_, D>, manifest: &Manifest, last: &Framed) -> Result<Vec<Item<D>>, Trouble> {
        let files = &source.checkpoints.files;
        let open = |path: &str, kind, most, log| {
            let file = files.open(path, Access::Read)?;
            let bytes = file.bytes()?;
            Ok::<_, Trouble>(Item { kind, file, bytes, content: bytes.min(most), log })
        };
        let checkpoint = manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        let checkpoint =
            checkpoint.zip(0..).map(|(file, number)| open(&file.path(), FileKind::Checkpoint(number), u64::MAX, None));
        let mut items = checkpoint.collect::<Result<Vec<_>, _>>()?;
        let live = source.log.live();
        let needed = live.iter().filter(|live| (manifest.first_log_file..=last.number).contains(&live.number));
        for (live, slot) in needed.zip(0..) {
            let most = if live.number == last.number { last.offset } else { u64::MAX };
            items.push(open(&path_of(live.slot), FileKind::Log(slot), most, Some((live.number, live.slot)))?);
        }
        Ok(items)
    }

    /// The next message; `None` behind the last one.
    pub(super) fn next(&mut self, source: Source<'_, D>) -> Result<Option<Vec<u8>>, Trouble> {
        let number = self.sent;
        self.sent += 1;
        if number == 0 {
            return Ok(Some(encode(&Message::Base { manifest: &self.manifest }, number)));
        }
        let Some(item) = self.items.get(self.next.0) else {
            let is_over = std::mem::replace(&mut self.is_over, true);
            return Ok(if is_over { None } else { Some(encode(&Message::BaseEnd { mark: self.mark }, number)) });
        };
        let Some(offset) = self.next.1 else {
            let message = encode(&Message::File { kind: item.kind, bytes: item.bytes }, number);
            self.next.1 = Some(0);
            self.pass_if_sent();
            return Ok(Some(message));
        };
        let mut piece = Buffer::zeroed((item.content - offset).min(PIECE as u64) as usize);
        item.file.read_at(offset, &mut piece)?;
        let is_gone = |(number, slot): (u64, u32)| {
            !source.log.live().iter().any(|live| (live.number, live.slot) == (number, slot))
        };
        if item.log.is_some_and(is_gone) {
            return Err(Trouble::TooFarBehind);
        }
        self.next.1 = Some(offset + piece.len() as u64);
        self.pass_if_sent();
        Ok(Some(encode(&Message::Piece(&piece), number)))
    }

    fn pass_if_sent(&mut self) {
        let (at, Some(offset)) = self.next else { return };
        if offset >= self.items[at].content {
            self.next = (at + 1, None);
        }
    }
}

/// A new standby whose files come.
pub struct Base<D: Disk> {
    files: Files<D>,
    decoder: Decoder,
    silence: Silence,
    /// The description of the copy, once it has come.
    manifest: Option<(Manifest, u64)>,
    /// How many files of the checkpoint and of the log have come.
    checkpoint_files: u32,
    log_files: u32,
    open: Option<Receiving<D>>,
    _lock: D::Lock,
}

struct Receiving<D: Disk> {
    file: File<D::File>,
    bytes: u64,
    offset: u64,
}

impl<D: Disk + Clone> Base<D> {
    /// Begins a standby in an empty directory, or anew where that was interrupted or the standby was too far behind; `None` where there is one. What is there
    /// goes when the primary begins to send what takes its place.
    ///
    /// # Errors
    /// [`Trouble::Files`]: the directory has something else.
    pub fn begin(files: &Files<D>) -> Result<Option<Self>, Trouble> {
        let is_marked = marker::is_there(files)?;
        if !is_marked && files.other_than(&[])?.is_some() {
            let (operation, cause) = (Operation::Create, Cause::NotEmpty);
            return Err(crate::disk::Error { operation, path: String::new(), offset: None, cause }.into());
        }
        let lock = files.lock()?;
        if is_marked && marker::read(files)? != Marked::Begun {
            return Ok(None);
        }
        if !is_marked {
            marker::create(files)?;
        }
        Ok(Some(Self {
            files: files.clone(),
            decoder: Decoder::new(most_from_primary()),
            silence: Silence::begin(Arc::new(SystemClock::new())),
            manifest: None,
            checkpoint_files: 0,
            log_files: 0,
            open: None,
            _lock: lock,
        }))
    }

    /// For how long nothing has been heard of the primary.
    pub fn silence(&self) -> Duration {
        self.silence.time()
    }

    /// The standby's first message on the connection.
    pub fn hello(&mut self) -> Vec<u8> {
        self.silence = Silence::begin(Arc::new(SystemClock::new()));
        let end = Cursor { number: 0, offset: 0, whole: 0, incarnation: 0, before: 0, is_unfinished: false };
        let (database, mark) = (DatabaseId(0), Mark::default());
        encode(&Message::Hello(Hello { database, incarnation: 0, end, last: (0, 0), mark }), 0)
    }

    /// Takes what the primary sends. Answers whether the standby is whole now: it can be opened.
    ///
    /// # Errors
    /// [`Trouble`]: it begins anew.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<bool, Trouble> {
        self.decoder.push(bytes);
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(0));
        while let Some(content) = decoder.next()? {
            let message = Message::decode(content).ok_or(Trouble::Garbled("a message is none that a primary sends"))?;
            if self.take(&message)? {
                return Ok(true);
            }
        }
        self.silence.note(&decoder);
        self.decoder = decoder;
        Ok(false)
    }

    fn take(&mut self, message: &Message<'_>) -> Result<bool, Trouble> {
        let unexpected = Trouble::Garbled("a message is not one that a new standby expects");
        match (message, &self.manifest) {
            (Message::Refused(refusal), _) => return Err(refused(*refusal, 0)),
            (Message::Base { manifest }, None) => {
                let decoded = manifest::decode(manifest).map_err(|_| Trouble::Garbled("a manifest is damaged"))?;
                self.make_way(&decoded.0)?;
                self.make_directories(&decoded.0)?;
                if left_out(ShipStep::ManifestsLast) {
                    self.write_manifests(&decoded.0, decoded.1)?;
                    marker::write(&self.files, Marked::At(Mark::default()))?;
                }
                self.manifest = Some(decoded);
            }
            (Message::File { kind, bytes }, Some(_)) => {
                self.close()?;
                let path = self.path(*kind, *bytes).ok_or(unexpected)?;
                let file = self.files.create(&path, *bytes)?;
                self.open = Some(Receiving { file, bytes: *bytes, offset: 0 });
            }
            (Message::Piece(piece), Some(_)) => {
                let Some(Receiving { file, bytes, offset }) = &mut self.open else { return Err(unexpected) };
                let is_whole = !piece.is_empty() && piece.len().is_multiple_of(BLOCK);
                if !is_whole || *offset + piece.len() as u64 > *bytes {
                    return Err(unexpected);
                }
                let mut buffer = Buffer::zeroed(piece.len());
                buffer.copy_from_slice(piece);
                file.write_at(*offset, &buffer)?;
                *offset += piece.len() as u64;
            }
            (Message::BaseEnd { mark }, Some((manifest, generation))) => {
                let (manifest, generation) = (manifest.clone(), *generation);
                self.close()?;
                let files = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.files.len());
                if self.checkpoint_files as usize != files || self.log_files == 0 {
                    return Err(unexpected);
                }
                self.finish(&manifest, generation, *mark)?;
                return Ok(true);
            }
            _ => return Err(unexpected),
        }
        Ok(false)
    }

    /// The path of the next file, if it is the one that comes next and has a length that it can have.
    fn path(&mut self, kind: FileKind, bytes: u64) -> Option<String> {
        let files = self.manifest.iter().flat_map(|(manifest, _)| &manifest.checkpoint);
        let mut files = files.flat_map(|checkpoint| &checkpoint.files);
        let is_block = bytes > 0 && bytes.is_multiple_of(BLOCK as u64);
        match kind {
            FileKind::Checkpoint(number) if number == self.checkpoint_files && is_block => {
                let file = files.nth(number as usize).filter(|file| file.bytes == bytes)?;
                self.checkpoint_files += 1;
                Some(file.path())
            }
            FileKind::Log(slot) if slot == self.log_files && is_block && bytes <= MOST_FILE => {
                self.log_files += 1;
                Some(path_of(slot))
            }
            _ => None,
        }
    }

    /// The file that has come is durable.
    fn close(&mut self) -> Result<(), Trouble> {
        self.open.take().map_or(Ok(()), |open| Ok(open.file.sync()?))
    }

    fn directories(manifest: &Manifest) -> BTreeSet<String> {
        let files = manifest.checkpoint.iter().flat_map(|checkpoint| &checkpoint.files);
        files.map(|file| directory_of(file.number)).collect()
    }

    /// Removes what was too far behind, or interrupted. A standby that is whole goes for a later state of its database alone: who has been told a wrong address,
    /// or that of a primary whose place another one has taken, loses nothing.
    fn make_way(&self, manifest: &Manifest) -> Result<(), Trouble> {
        if let Ok(Some(Manifest { database, incarnation: seen, .. })) = Manifests::read(&self.files)
            && !left_out(ShipStep::KeepOthers)
        {
            if manifest.database != database {
                return Err(Trouble::OtherDatabase);
            }
            if manifest.incarnation < seen {
                return Err(Trouble::Fenced { primary: manifest.incarnation, seen });
            }
        }
        Ok(backup::clear(&self.files)?)
    }

    fn make_directories(&self, manifest: &Manifest) -> Result<(), Trouble> {
        self.files.create_directory(DIRECTORY)?;
        self.files.create_directory(checkpoint::DIRECTORY)?;
        for directory in Self::directories(manifest) {
            self.files.create_directory(&directory)?;
        }
        Ok(())
    }

    fn finish(&self, manifest: &Manifest, generation: u64, mark: Mark) -> Result<(), Trouble> {
        for directory in Self::directories(manifest) {
            self.files.sync_directory(&directory)?;
        }
        self.files.sync_directory(checkpoint::DIRECTORY)?;
        self.files.sync_directory(DIRECTORY)?;
        if !left_out(ShipStep::ManifestsLast) {
            self.write_manifests(manifest, generation)?;
        }
        // Only now it is a standby.
        Ok(marker::write(&self.files, Marked::At(mark))?)
    }

    fn write_manifests(&self, manifest: &Manifest, generation: u64) -> Result<(), Trouble> {
        let mut manifests = Manifests::create(&self.files, manifest.clone())?;
        Ok(manifests.write_from(manifest.clone(), generation)?)
    }
}
