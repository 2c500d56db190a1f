//! Automata that find all ends, or all beginnings, of what an expression matches at a place.

use regex_automata::hybrid::dfa::{Cache, DFA, OverlappingState};
use regex_automata::nfa::thompson::{NFA, WhichCaptures};
use regex_automata::{Anchored, Input, MatchError, MatchKind};
use regex_syntax::hir::Hir;

use super::{SIZE, invalid};
use crate::error::SqlError;

/// Matches in one direction.
#[derive(Debug)]
pub(super) struct Automaton {
    dfa: DFA,
    cache: Cache,
}

fn too_complex() -> SqlError {
    invalid("regular expression is too complex")
}

fn quit(_: MatchError) -> SqlError {
    SqlError::unsupported("the boundary of a word beside letters that are not of ASCII, in a regular expression,")
}

/// Makes automata, as long as all together are not too large.
pub(super) struct Builder {
    left: usize,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { left: 16 * SIZE }
    }

    pub(super) fn forward(&mut self, of: &Hir) -> Result<Automaton, SqlError> {
        self.make(of, false)
    }

    pub(super) fn backward(&mut self, of: &Hir) -> Result<Automaton, SqlError> {
        self.make(of, true)
    }

    fn make(&mut self, of: &Hir, is_backward: bool) -> Result<Automaton, SqlError> {
        let made = Automaton::new(of, is_backward)?;
        let takes = made.dfa.get_nfa().memory_usage() + made.dfa.memory_usage() + made.cache.memory_usage();
        self.left = self.left.checked_sub(takes).ok_or_else(too_complex)?;
        Ok(made)
    }
}

impl Automaton {
    fn new(of: &Hir, is_backward: bool) -> Result<Self, SqlError> {
        let config = NFA::config().reverse(is_backward).nfa_size_limit(Some(SIZE)).which_captures(WhichCaptures::None);
        let nfa = NFA::compiler().configure(config).build_from_hir(of).map_err(|_| too_complex())?;
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .skip_cache_capacity_check(true)
            .cache_capacity(SIZE);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|_| too_complex())?;
        let cache = dfa.create_cache();
        Ok(Self { dfa, cache })
    }

    fn input<'t>(text: &'t str, (start, end): (usize, usize)) -> Input<'t> {
        Input::new(text).range(start..end).anchored(Anchored::Yes)
    }

    /// The end of the shortest or of the longest match that begins where the range does.
    pub(super) fn end(
        &mut self,
        text: &str,
        range: (usize, usize),
        is_shortest: bool,
    ) -> Result<Option<usize>, SqlError> {
        let input = Self::input(text, range).earliest(is_shortest);
        let found = self.dfa.try_search_fwd(&mut self.cache, &input).map_err(quit)?;
        Ok(found.map(|it| it.offset()))
    }

    /// Whether the range as a whole matches.
    pub(super) fn is_all(&mut self, text: &str, range: (usize, usize)) -> Result<bool, SqlError> {
        Ok(self.end(text, range, false)? == Some(range.1))
    }

    /// The ends of all matches that begin where the range does, in their order.
    pub(super) fn ends(&mut self, text: &str, range: (usize, usize)) -> Result<Vec<usize>, SqlError> {
        let (input, mut state, mut all) = (Self::input(text, range), OverlappingState::start(), Vec::new());
        loop {
            self.dfa.try_search_overlapping_fwd(&mut self.cache, &input, &mut state).map_err(quit)?;
            let Some(found) = state.get_match() else { return Ok(all) };
            all.push(found.offset());
        }
    }

    /// The beginnings of all matches that end where the range does, from the last one on.
    pub(super) fn beginnings(&mut self, text: &str, range: (usize, usize)) -> Result<Vec<usize>, SqlError> {
        let (input, mut state, mut all) = (Self::input(text, range), OverlappingState::start(), Vec::new());
        loop {
            self.dfa.try_search_overlapping_rev(&mut self.cache, &input, &mut state).map_err(quit)?;
            let Some(found) = state.get_match() else { return Ok(all) };
            all.push(found.offset());
        }
    }
}
