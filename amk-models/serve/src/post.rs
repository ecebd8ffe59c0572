//! The post: a thread that delivers what the engine writes. Waking the task of a client takes
//! microseconds, which with many clients would be a part of every step.

use crate::engine::Numbered;
use std::sync::mpsc::{Sender, channel};
use tokio::sync::mpsc::UnboundedSender;

/// A piece of a text, on its way to a client.
pub(crate) struct Letter {
    to: UnboundedSender<Numbered>,
    piece: Numbered,
}

impl Letter {
    pub(crate) fn new(to: &UnboundedSender<Numbered>, piece: Numbered) -> Self {
        Self { to: to.clone(), piece }
    }

    pub(crate) fn deliver(self) {
        // The engine sees before its next step that a client is gone.
        let _ = self.to.send(self.piece);
    }
}

/// The way to the thread, which ends after the last letters when this is dropped.
pub(crate) struct Post(Sender<Vec<Letter>>);

impl Post {
    pub(crate) fn start() -> Self {
        let (sender, letters) = channel::<Vec<Letter>>();
        std::thread::spawn(move || letters.into_iter().flatten().for_each(Letter::deliver));
        Self(sender)
    }

    /// Has letters delivered, in order.
    pub(crate) fn send(&self, letters: Vec<Letter>) {
        // The thread does not end before this.
        let _ = self.0.send(letters);
    }
}
