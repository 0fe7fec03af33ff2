//! Streams that last as long as their client likes are counted: one token can't hold every connection the server has.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use formation_core::TokenId;

/// Who holds how many streams.
#[derive(Debug, Clone, Default)]
pub(super) struct Seats(Arc<Mutex<HashMap<TokenId, usize>>>);

/// One stream's place, given back with the stream.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Seats,
    token: TokenId,
}

impl Seats {
    /// Enough for every client of a busy agent, and far from all there is.
    pub(super) const PER_TOKEN: usize = 64;

    /// A place, while the token has one left.
    pub(super) fn take(&self, token: TokenId) -> Option<Seat> {
        let mut seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = seats.entry(token).or_default();
        if *held == Self::PER_TOKEN {
            return None;
        }
        *held += 1;
        Some(Seat { seats: self.clone(), token })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = seats.get_mut(&self.token) {
            *held -= 1;
            if *held == 0 {
                seats.remove(&self.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_s_seats_are_its_own_and_come_back() {
        let seats = Seats::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| seats.take(TokenId::fixed(1))).collect();
        assert_eq!(taken.len(), Seats::PER_TOKEN);
        assert!(seats.take(TokenId::fixed(2)).is_some());
        taken.pop();
        taken.extend(seats.take(TokenId::fixed(1)));
        assert_eq!(taken.len(), Seats::PER_TOKEN);
        drop(taken);
        assert!(seats.0.lock().expect("nobody panicked").is_empty());
    }
}
