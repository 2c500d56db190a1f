//! Steps of a protocol that a test leaves out, and points in it at which a test steps in: how tests show what each step is
//! for.
//!
//! Only the tests turn the feature `mutations` on. Then a thread can leave out one step (`leave_out`) and have something
//! done when it comes to a point (`interrupt`), so that a race is an interleaving that the test writes down. In every other
//! build [`left_out`] is the constant `false`, [`pass`] is empty, and nothing of them is left in the code.

/// Something with a name of its own: a step or a point, as [`crate::named`] makes them.
pub trait Named: Copy + 'static {
    /// Its name, as in the code.
    fn name(self) -> &'static str;
}

/// Makes an enum of names: the steps of a protocol that can be left out, or its points.
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl $crate::mutations::Named for $name {
            #[inline]
            fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),* }
            }
        }
    };
}

/// Whether this thread leaves the step out.
#[inline(always)]
pub fn left_out(step: impl Named) -> bool {
    #[cfg(feature = "mutations")]
    return switches::LEFT_OUT.get() == step.name();
    #[cfg(not(feature = "mutations"))]
    {
        let _ = step;
        false
    }
}

/// This thread has come to a point.
#[inline(always)]
pub fn pass(point: impl Named) {
    #[cfg(feature = "mutations")]
    switches::pass(point.name());
    #[cfg(not(feature = "mutations"))]
    let _ = point;
}

/// `act` for another thread, which leaves out there what this one leaves out.
pub fn inheriting<O>(act: impl FnOnce() -> O) -> impl FnOnce() -> O {
    #[cfg(feature = "mutations")]
    {
        let inherited = inherited();
        move || {
            let _left_out = inherited.leave_out();
            act()
        }
    }
    #[cfg(not(feature = "mutations"))]
    act
}

#[cfg(feature = "mutations")]
pub use switches::{Inherited, LeftOut, inherited, interrupt, leave_out};

#[cfg(feature = "mutations")]
mod switches {
    use std::cell::{Cell, RefCell};

    use super::Named;

    type Interruption = (&'static str, Box<dyn FnOnce()>);

    thread_local! {
        pub(super) static LEFT_OUT: Cell<&'static str> = const { Cell::new("") };
        static INTERRUPTION: RefCell<Option<Interruption>> = const { RefCell::new(None) };
    }

    /// While it lives, its thread leaves a step out.
    #[derive(Debug)]
    #[must_use]
    pub struct LeftOut(());

    /// Leaves `step` out in this thread.
    pub fn leave_out(step: impl Named) -> LeftOut {
        let before = LEFT_OUT.replace(step.name());
        assert_eq!(before, "", "one step at a time is left out");
        LeftOut(())
    }

    /// The steps that a thread leaves out, for threads that it starts.
    #[derive(Clone, Copy, Debug)]
    pub struct Inherited(&'static str);

    /// The step that this thread leaves out.
    pub fn inherited() -> Inherited {
        Inherited(LEFT_OUT.get())
    }

    impl Inherited {
        /// Leaves the same out in this thread.
        pub fn leave_out(self) -> LeftOut {
            LEFT_OUT.set(self.0);
            LeftOut(())
        }
    }

    impl Drop for LeftOut {
        fn drop(&mut self) {
            LEFT_OUT.set("");
        }
    }

    /// Has `work` done when this thread next comes to `point`; once.
    pub fn interrupt(point: impl Named, work: impl FnOnce() + 'static) {
        INTERRUPTION.set(Some((point.name(), Box::new(work))));
    }

    pub(super) fn pass(point: &'static str) {
        let due =
            |waiting: &RefCell<Option<Interruption>>| waiting.borrow_mut().take_if(|(awaited, _)| *awaited == point);
        // A thread that ends waits for nothing.
        if let Ok(Some((_, work))) = INTERRUPTION.try_with(due) {
            work();
        }
    }
}
