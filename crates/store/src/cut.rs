//! Named cut points: places at which the fault lab ends the process. Outside the lab's build the
//! macro compiles to nothing. No environment variable, flag or file can arm one: only a program
//! that is built with the feature and calls [`arm`].

/// Marks a place at which a process may die in the fault lab.
#[cfg(feature = "cut-points")]
#[macro_export]
macro_rules! cut_point {
    ($name:literal) => {
        $crate::cut::reached($name)
    };
}

/// Marks a place at which a process may die in the fault lab.
#[cfg(not(feature = "cut-points"))]
#[macro_export]
macro_rules! cut_point {
    ($name:literal) => {};
}

#[cfg(feature = "cut-points")]
pub use armed::{Cut, arm, reached};

#[cfg(feature = "cut-points")]
mod armed {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    type Action = Box<dyn Fn(&str) + Send>;

    /// What happens where.
    pub struct Cut {
        /// The name of the place.
        pub at: String,
        /// How many times the place is passed before it acts.
        pub after: usize,
        /// What happens: end the process, or wait at a barrier.
        pub action: Action,
    }

    impl std::fmt::Debug for Cut {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Cut").field("at", &self.at).field("after", &self.after).finish()
        }
    }

    static ARMED: Mutex<Vec<Cut>> = Mutex::new(Vec::new());
    static PASSED: AtomicUsize = AtomicUsize::new(0);

    /// Arms a cut for the rest of the process's life.
    pub fn arm(cut: Cut) {
        ARMED.lock().unwrap_or_else(PoisonError::into_inner).push(cut);
    }

    /// Called by [`cut_point!`](crate::cut_point).
    pub fn reached(name: &str) {
        PASSED.fetch_add(1, Ordering::Relaxed);
        let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
        for cut in armed.iter_mut().filter(|cut| cut.at == name) {
            if cut.after == 0 {
                (cut.action)(name);
            } else {
                cut.after -= 1;
            }
        }
    }
}
