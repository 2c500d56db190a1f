//! Lists that are kept from one use to the next, and give back the room of a backlog or of a huge transaction.

use std::collections::VecDeque;

/// Entries that a list keeps room for, however few there are.
pub const ROOM: usize = 1 << 12;

/// A list that is kept for long.
pub trait KeptList {
    /// Entries that there is room for.
    fn room(&self) -> usize;

    /// Gives back most of what is empty, if that is much.
    fn give_back_room(&mut self);

    /// Empties the list, which keeps no more room than for its usual length.
    fn forget(&mut self);
}

/// To how many entries a list shrinks that has `len` of `room`, if it does.
#[inline]
fn shrunk(len: usize, room: usize) -> Option<usize> {
    // What is empty is three quarters at least, so that a list at its usual length never shrinks and grows in turns.
    (room > ROOM && room > 4 * len).then(|| ROOM.max(2 * len))
}

macro_rules! kept_lists {
    ($($list:ident)*) => {$(
        impl<T> KeptList for $list<T> {
            #[inline]
            fn room(&self) -> usize {
                self.capacity()
            }

            #[inline]
            fn give_back_room(&mut self) {
                if let Some(room) = shrunk(self.len(), self.capacity()) {
                    self.shrink_to(room);
                }
            }

            #[inline]
            fn forget(&mut self) {
                self.clear();
                self.give_back_room();
            }
        }
    )*};
}

kept_lists! { Vec VecDeque }

/// Clears each of these, whatever they are.
#[macro_export]
macro_rules! clear_each {
    ($($cleared:expr),+ $(,)?) => {
        $($cleared.clear();)+
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_what_it_uses_and_gives_back_a_backlog() {
        let mut list: Vec<u8> = Vec::with_capacity(ROOM);
        list.give_back_room();
        assert_eq!(list.room(), ROOM);
        list.resize(8 * ROOM, 0);
        list.truncate(3 * ROOM);
        list.give_back_room();
        assert_eq!(list.room(), 8 * ROOM, "a third of it is in use");
        list.truncate(ROOM);
        list.give_back_room();
        assert_eq!((list.len(), list.room()), (ROOM, 2 * ROOM));
        list.clear();
        list.give_back_room();
        assert_eq!(list.room(), ROOM);
    }
}
