//! Which of many sockets have something to read.

pub(crate) use system::Watch;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsFd as _, OwnedFd};

    use polychron_base::clock::Duration;
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::event::{EventfdFlags, Timespec, eventfd};
    use rustix::io::{read, write};

    use crate::socket::Socket;

    /// What stands for a wake in the place of a number.
    const WAKE: u64 = u64::MAX;
    /// How many sockets are told at once.
    const EVENTS: usize = 256;

    /// Sockets that one thread waits for.
    #[derive(Debug)]
    pub(crate) struct Watch {
        sockets: OwnedFd,
        wakes: OwnedFd,
    }

    impl Watch {
        pub(crate) fn new() -> io::Result<Self> {
            let sockets = epoll::create(CreateFlags::CLOEXEC)?;
            let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(&sockets, &wakes, EventData::new_u64(WAKE), EventFlags::IN)?;
            Ok(Self { sockets, wakes })
        }

        /// Watches a socket, which is told by its number once something can be read there, the end included.
        pub(crate) fn add(&self, socket: &Socket, number: i32) -> io::Result<()> {
            let data = EventData::new_u64(u64::from(number.unsigned_abs()));
            // Told once: what is told is taken over before its thread reads.
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
            Ok(epoll::add(&self.sockets, socket.as_fd(), data, flags)?)
        }

        pub(crate) fn remove(&self, socket: &Socket) {
            // A socket that is not watched needs no more.
            let _ = epoll::delete(&self.sockets, socket.as_fd());
        }

        /// Has a wait end.
        pub(crate) fn wake(&self) {
            // A counter that is full wakes, too.
            let _ = write(&self.wakes, &1_u64.to_ne_bytes());
        }

        /// Waits for sockets, for this time at most, and tells their numbers.
        pub(crate) fn wait(&self, time: Option<Duration>) -> Vec<i32> {
            let time = time.map(|time| Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(time.subsec_nanos()),
            });
            let mut events = Vec::with_capacity(EVENTS);
            // Interrupted, it has found nothing.
            if epoll::wait(&self.sockets, spare_capacity(&mut events), time.as_ref()).is_err() {
                return Vec::new();
            }
            let mut numbers = Vec::with_capacity(events.len());
            for event in events {
                match event.data.u64() {
                    WAKE => drop(read(&self.wakes, &mut [0; 8])),
                    number => numbers.extend(i32::try_from(number)),
                }
            }
            numbers
        }
    }
}

/// Elsewhere nothing is watched, and sessions keep their threads.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::sync::{Condvar, Mutex, PoisonError};

    use polychron_base::clock::Duration;

    use crate::socket::Socket;

    #[derive(Debug, Default)]
    pub(crate) struct Watch {
        is_woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Watch {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn add(&self, _: &Socket, _: i32) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn remove(&self, _: &Socket) {}

        pub(crate) fn wake(&self) {
            *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.changed.notify_all();
        }

        pub(crate) fn wait(&self, time: Option<Duration>) -> Vec<i32> {
            let is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
            let time = time.unwrap_or(Duration::from_secs(3600));
            let waited = self.changed.wait_timeout_while(is_woken, time, |is_woken| !*is_woken);
            *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
            Vec::new()
        }
    }
}
