//! Client batches that other threads look at beside the pipeline.

use std::ops::Deref;
use std::sync::Arc;

use polychron_sync::atomic::Ordering;

use super::{ClientBatch, HandedIn};

/// A client batch that its client shares with others.
#[derive(Debug)]
pub(in super::super) struct Shared(Arc<ClientBatch>);

impl Deref for Shared {
    type Target = ClientBatch;

    #[inline]
    fn deref(&self) -> &ClientBatch {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take_back`.
        self.0.shares.fetch_sub(1, Ordering::Release);
    }
}

impl HandedIn {
    /// The client batch, for others. The client does not take it back before all of them have dropped it.
    pub(in super::super) fn share(&self) -> Shared {
        // Relaxed: the client has it, and looks at the count itself.
        self.0.shares.fetch_add(1, Ordering::Relaxed);
        Shared(Arc::clone(&self.0))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::ClientBatches;

    #[test]
    fn a_client_takes_a_client_batch_back_when_no_other_thread_shares_it() {
        let (_, handed_in) = ClientBatches::default().take().hand_over();
        let shares = [handed_in.share(), handed_in.share()];
        let handed_in = shares.into_iter().fold(handed_in, |handed_in, share| {
            let handed_in = handed_in.take_back().expect_err("it is shared");
            drop(share);
            handed_in
        });
        handed_in.take_back().expect("it is shared no more");
    }
}
