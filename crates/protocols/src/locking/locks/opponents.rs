//! Which transaction blocks a request.

use super::super::wounds::Requester;
use super::{Queue, State};

impl Queue<'_> {
    /// Notes the first transaction that blocks a request, which waits no longer, as the opponent of the request's own.
    #[cold]
    pub(super) fn note_opponent(&self, name: u64, state: &State, requester: Requester) {
        let exclusive = state.exclusive.get() || state.upgrades.get();
        self.each(name, |other| {
            let other = other.state();
            let blocks = !requester.is(other.requester) && other.blocks(requester, exclusive);
            if blocks {
                requester.records_opponent(other.requester);
            }
            !blocks
        });
    }
}
