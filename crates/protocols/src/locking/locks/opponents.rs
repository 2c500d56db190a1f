//! Who stands in the way of a request.

use super::super::wounds::Requester;
use super::{Queue, Said};

impl Queue<'_> {
    /// Notes the first one that stands in the way of a request, which is not waited for any longer, as what its transaction gives up before.
    #[cold]
    pub(super) fn note_opponent(&self, name: u64, said: &Said, requester: Requester) {
        let exclusive = said.exclusive.get() || said.upgrades.get();
        self.each(name, |other| {
            let other = other.said();
            let is_in_the_way = !requester.is(other.requester) && other.blocks(requester, exclusive);
            if is_in_the_way {
                requester.gives_up_before(other.requester);
            }
            !is_in_the_way
        });
    }
}
