//! Replies that come in parts, and requests that are forgotten.

use super::*;

impl ModelSegment {
    /// Gives a part of the reply; returns false if it is not the server's turn.
    fn give(&self, taken: &ModelRequest, part: u32) -> bool {
        let slot = self.slot(taken.idx);
        if slot.holding(taken.word) != Holding::Taken {
            return false;
        }
        self.payloads[taken.idx as usize].reply.store(part, Ordering::Relaxed);
        slot.set_holder(SERVER, Mark::Whole, NamedBlobs::default());
        let before = slot.pass_to_client(taken.word);
        if before.is_some_and(SlotWord::has_waiter) {
            slot.wake();
        }
        before.is_some()
    }

    /// Waits until it is not the client's turn.
    fn wait_for_turn(&self, taken: &ModelRequest) -> Holding {
        let slot = self.slot(taken.idx);
        let look = || Ok(Some(slot.holding(taken.word)).filter(|holding| *holding != Holding::Given));
        let held = sleepily(|wait| slot.wait(taken.word.generation(), &[State::Part], wait, look, || Ok(())));
        held.expect("no deadline")
    }

    /// Fails a request, with the reason 9 if it is the server's turn.
    fn fail(&self, taken: &ModelRequest) {
        let slot = self.slot(taken.idx);
        if slot.holding(taken.word) == Holding::Taken {
            self.payloads[taken.idx as usize].reply.store(9, Ordering::Relaxed);
            slot.set_holder(SERVER, Mark::Reason, NamedBlobs::default());
        }
        let left = slot.finish(taken.word, State::Failed, &none_leave).expect("it is this server's");
        if left.has_waiter() {
            slot.wake();
        }
    }

    /// Waits until slot 0 is the client's.
    fn wait_for_client(&self, sent: SlotWord) -> SlotWord {
        let slot = self.slot(0);
        let look = || {
            let now = slot.load();
            assert_eq!(now.generation(), sent.generation(), "the slot is its client's until that frees it");
            Ok(Some(now).filter(|now| !now.state().is_some_and(|state| WAITS.contains(&state))))
        };
        let seen = sleepily(|wait| slot.wait(sent.generation(), &WAITS, wait, look, || Ok(())));
        seen.expect("no deadline")
    }

    /// Copies a part out; `None` if the call was ended meanwhile.
    fn take_part(&self, part: SlotWord) -> Option<u32> {
        let bytes = self.payloads[0].reply.load(Ordering::Relaxed);
        self.slot(0).pass_to_server(part, &none_leave).then_some(bytes)
    }
}

/// A segment with a request in slot 0 that a server has taken: both, and the word that was sent.
fn taken(redeliveries: u8) -> (Arc<ModelSegment>, Arc<ModelRequest>, SlotWord) {
    let segment = ModelSegment::new(2);
    let (sent, _) = segment.send(0, 7, redeliveries).expect("it is free");
    let taken = segment.take().expect("it was sent");
    (segment, Arc::new(taken), sent)
}

#[test]
fn part_and_reply_come_in_turn_wherever_either_side_sleeps() {
    search(|| {
        let (segment, taken, sent) = taken(0);
        let server = Arc::clone(&segment);
        let server = thread::spawn(move || {
            assert!(server.give(&taken, 1));
            assert_eq!(server.wait_for_turn(&taken), Holding::Taken);
            assert!(server.echo(&taken));
        });
        let part = segment.wait_for_client(sent);
        assert_eq!((part.state(), segment.take_part(part)), (Some(State::Part), Some(1)));
        let done = segment.wait_for_client(sent);
        assert_eq!((done.state(), segment.look(0, sent.generation())), (Some(State::Answered), Some(7)));
        server.join().expect("it does not panic");
    });
}

#[test]
fn a_call_is_cancelled_once_while_another_thread_takes_its_part() {
    search(|| {
        let (segment, taken, sent) = taken(0);
        assert!(segment.give(&taken, 1));
        let (server, taker) = (Arc::clone(&segment), Arc::clone(&segment));
        let server = thread::spawn(move || {
            while server.wait_for_turn(&taken) == Holding::Taken && server.give(&taken, 2) {}
            assert!(!server.echo(&taken), "the call was cancelled");
        });
        let taker = thread::spawn(move || {
            let part = taker.slot(0).load();
            if part.state() != Some(State::Part) || part.generation() != sent.generation() {
                return None;
            }
            taker.take_part(part)
        });
        segment.slot(0).cancel(sent.generation(), CLIENT, &none_leave).expect("there is no reply");
        server.join().expect("it does not panic");
        let part = taker.join().expect("it does not panic");
        assert!([None, Some(1), Some(2)].contains(&part), "{part:?}");
        assert_eq!(segment.slot(0).load().state(), Some(State::Free));
    });
}

#[test]
fn server_that_fails_leaves_a_whole_part_or_none_and_a_whole_reason() {
    search(|| {
        let (segment, taken, sent) = taken(0);
        assert!(segment.give(&taken, 1));
        let server = Arc::clone(&segment);
        let server = thread::spawn(move || server.fail(&taken));
        let seen = segment.slot(0).load();
        if seen.state() == Some(State::Part) {
            let part = segment.take_part(seen);
            assert!([None, Some(1)].contains(&part), "{part:?}");
        }
        let done = segment.wait_for_client(sent);
        assert_eq!(done.state(), Some(State::Failed));
        if segment.slot(0).is_marked(Mark::Reason) {
            assert_eq!(segment.payloads[0].reply.load(Ordering::Relaxed), 9);
        }
        server.join().expect("it does not panic");
    });
}

#[test]
fn begun_call_ends_with_its_server_in_any_state() {
    search(|| {
        let (segment, taken, sent) = taken(1);
        assert!(segment.give(&taken, 1));
        let recoverer = Arc::clone(&segment);
        let recoverer = thread::spawn(move || recoverer.recover(SERVER, || true));
        let seen = segment.slot(0).load();
        if seen.state() == Some(State::Part) {
            let part = segment.take_part(seen);
            assert!([None, Some(1)].contains(&part), "{part:?}");
        }
        assert_eq!(segment.wait_for_client(sent).state(), Some(State::Died));
        recoverer.join().expect("it does not panic");
    });
}

#[test]
fn server_learns_of_a_dead_client_wherever_it_sleeps() {
    search(|| {
        let (segment, taken, _) = taken(0);
        assert!(segment.give(&taken, 1));
        let recoverers = [(); 2].map(|()| {
            let segment = Arc::clone(&segment);
            thread::spawn(move || segment.recover(CLIENT, || true))
        });
        assert_eq!(segment.wait_for_turn(&taken), Holding::Dropped);
        segment.fail(&taken);
        recoverers.into_iter().for_each(|recoverer| recoverer.join().expect("it does not panic"));
        assert_eq!(segment.slot(0).load().state(), Some(State::Free));
    });
}

#[test]
fn forgotten_request_is_taken_once_whenever_it_is_forgotten() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (sent, _) = segment.send(0, 7, 0).expect("it is free");
        let server = Arc::clone(&segment);
        let server = thread::spawn(move || {
            let taken = server.take().expect("it stays");
            assert_eq!(taken.request, 7);
            server.echo(&taken)
        });
        let forgotten = segment.slot(0).forget(sent.generation(), CLIENT, &none_leave).is_some();
        assert_eq!(server.join().expect("it does not panic"), !forgotten);
        assert_eq!(segment.look(0, sent.generation()), (!forgotten).then_some(7));
        assert!(segment.take().is_none());
        assert_eq!(segment.slot(0).load().state(), Some(State::Free));
    });
}

#[test]
fn forgotten_request_is_redelivered_when_its_recovery_died_before_the_push() {
    search(|| {
        let segment = ModelSegment::new(2);
        let (sent, _) = segment.send(0, 7, 1).expect("it is free");
        segment.slot(0).forget(sent.generation(), CLIENT, &none_leave).expect("nobody has it");
        assert_eq!(segment.take_and_die(), Some(0));
        // This server finds the entry of the dead server, which may be stale by then.
        let server = Arc::clone(&segment);
        let server = thread::spawn(move || server.take().map(|taken| (taken.idx, taken.request)));
        let slot = segment.slot(0);
        let word = slot.load();
        let again = word.without(SERVER, slot.fields()).expect("it is the dead server's");
        assert!(slot.step(word, again));
        // The next recovering process.
        let waits = slot.load().state() == Some(State::Sent);
        if waits && !segment.queue().entries_behind_first().any(|entry| entry.is_of(word)) {
            segment.push(0, word);
        }
        let taken = server.join().expect("it does not panic");
        let rest = std::iter::from_fn(|| segment.take()).map(|taken| (taken.idx, taken.request));
        assert!(taken.into_iter().chain(rest).eq([(0, 7)]));
    });
}
