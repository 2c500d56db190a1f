//! Sweeps: the lists of what is kept are gone through, in slices, when many of the before-images in them have left their chains.

use std::ops::Bound;

use super::Collector;
use crate::hyper::clock::History;

impl Collector {
    /// Looks for kept buffers of which nothing is left, and for those of which little is: these are pruned again. Goes on where the slice
    /// before has stopped, and at most so far.
    #[cold]
    pub(in crate::hyper) fn sweep(&mut self, history: &mut History, most: usize) {
        if !history.is_sweeping {
            history.is_sweeping = true;
            history.gone_before_images = 0;
        }
        for _ in 0..most {
            let Some(kept) = history.kept.pop_front() else {
                history.is_sweeping = false;
                std::mem::swap(&mut history.kept, &mut history.swept);
                return;
            };
            self.walked += 1;
            let linked = kept.buffer.linked().count();
            if linked > 0 && 2 * linked > kept.before_images {
                history.swept.push_back(kept);
                continue;
            }
            history.kept_before_images -= kept.before_images;
            let kept = history.forget(kept);
            if linked == 0 {
                self.dead.push(kept.buffer);
            } else {
                self.to_prune.push(kept);
            }
        }
    }

    /// As [`Collector::sweep`], of what lies behind transactions that may write.
    #[cold]
    pub(in crate::hyper) fn sweep_behind(&mut self, history: &mut History, most: usize) {
        if history.behind_swept.is_none() {
            history.behind_gone = 0;
        }
        let first = history.behind_swept.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut looked_at, mut last) = (0, None);
        for (position, behind) in history.behind.range((first, Bound::Unbounded)).take(most) {
            let linked = behind.committed.buffer.linked().count();
            if linked == 0 || 2 * linked <= behind.committed.before_images {
                self.swept.push(*position);
            }
            (looked_at, last) = (looked_at + 1, Some(*position));
        }
        self.walked += looked_at as u64;
        history.behind_swept = last.filter(|_| looked_at == most);
        for position in self.swept.drain(..) {
            self.behind.extend(history.take_to_prune(position, self.slot).map(|committed| (committed, 0)));
        }
    }
}
