//! Libraries that programs use today to send one message to many receivers. Each is used as its manual
//! shows.

use super::deliveries::Task;
use crate::measure::{Failure, Sample};

type Run = Box<dyn FnMut() -> Result<Sample, Failure>>;

/// How iceoryx2 is used.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "peers"), allow(dead_code, reason = "without the peers nobody asks"))]
pub struct Iceoryx2 {
    /// Whether the publisher waits for a subscriber that is slow, rather than overwrite what it has not
    /// received.
    pub sees_all: bool,
    /// Whether the message is made in the memory of the loan: of its bytes only the number is written.
    pub in_place: bool,
}

#[cfg(not(feature = "peers"))]
pub fn iceoryx2(_task: Task, _used: Iceoryx2) -> Run {
    Box::new(|| Err("not built: cargo run --features peers".into()))
}

#[cfg(not(feature = "peers"))]
pub fn zeromq(task: Task, sees_all: bool) -> Run {
    iceoryx2(task, Iceoryx2 { sees_all, in_place: false })
}

#[cfg(feature = "peers")]
pub use heavy::{iceoryx2, zeromq};

#[cfg(feature = "peers")]
mod heavy {
    use std::sync::atomic::{AtomicBool, Ordering};

    use iceoryx2::port::listener::Listener;
    use iceoryx2::port::notifier::Notifier;
    use iceoryx2::port::publisher::Publisher;
    use iceoryx2::port::subscriber::Subscriber;
    use iceoryx2::prelude::{
        BackpressureStrategy, LogLevel, Node, NodeBuilder, ServiceName, ipc, set_log_level,
    };
    use iceoryx2::service::port_factory::{event, publish_subscribe};

    use super::*;
    use crate::broadcast::deliveries::{Channel, NUMBER, Pace, Publish, Receive, memory, number, run};
    use crate::reqrep::bare::{Flags, Line};
    use crate::reqrep::peers::fresh_name;

    // ------------------------------------------------------------ iceoryx2

    pub fn iceoryx2(task: Task, used: Iceoryx2) -> Run {
        run(task, move |task| {
            set_log_level(LogLevel::Error);
            let (name, flags, is_there) = (fresh_name(), Flags::shared()?, memory()?);
            Ok(Service { name, flags, is_there, task: *task, used })
        })
    }

    struct Service {
        name: String,
        flags: &'static Flags,
        is_there: &'static IsThere,
        task: Task,
        used: Iceoryx2,
    }

    /// Whether the publisher is complete. A subscriber of iceoryx2 that looks for messages earlier may
    /// miss that it has come, and then gets none.
    type IsThere = Line<AtomicBool>;

    type Messages = publish_subscribe::PortFactory<ipc::Service, [u8], ()>;
    type Events = event::PortFactory<ipc::Service>;

    /// What a port needs as long as it is there.
    struct Kept {
        messages: Messages,
        events: Option<Events>,
        _node: Node<ipc::Service>,
    }

    impl Service {
        fn open(&self) -> Result<Kept, Failure> {
            let node = NodeBuilder::new().create::<ipc::Service>()?;
            let name = |part| ServiceName::new(&format!("{}-{part}", self.name));
            let messages = node.service_builder(&name("messages")?).publish_subscribe::<[u8]>();
            let messages = messages.max_publishers(1).max_subscribers(self.task.subscribers.max(1));
            let messages = messages.history_size(0).enable_safe_overflow(!self.used.sees_all);
            // As many as the ring of a channel; one where only one is under way, so that its memory is as
            // small as possible.
            let buffer = if self.task.pace == Pace::Stream { pipework::defaults::MESSAGES } else { 1 };
            let messages = messages.subscriber_max_buffer_size(buffer as usize);
            let messages = messages.subscriber_max_borrowed_samples(1).open_or_create()?;
            let events = self
                .task
                .sleeps()
                .then(|| Ok::<_, Failure>(node.service_builder(&name("event")?).event().open_or_create()?));
            Ok(Kept { messages, events: events.transpose()?, _node: node })
        }
    }

    impl Channel for Service {
        type Publisher = LoanPublisher;
        type Subscriber = LoanSubscriber;

        fn publisher(&self) -> Result<LoanPublisher, Failure> {
            let kept = self.open()?;
            let publisher = kept.messages.publisher_builder().initial_max_slice_len(self.task.bytes);
            let publisher = publisher.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered);
            let publisher = publisher.max_loaned_samples(1).create()?;
            let notifier = kept.events.as_ref().map(|events| events.notifier_builder().create());
            let notifier = notifier.transpose()?;
            let payload = vec![7; self.task.bytes];
            self.is_there.0.store(true, Ordering::Release);
            Ok(LoanPublisher { publisher, notifier, payload, in_place: self.used.in_place, _kept: kept })
        }

        fn subscriber(&self, _nth: usize) -> Result<LoanSubscriber, Failure> {
            let kept = self.open()?;
            let listener = kept.events.as_ref().map(|events| events.listener_builder().create());
            Ok(LoanSubscriber {
                subscriber: kept.messages.subscriber_builder().create()?,
                listener: listener.transpose()?,
                flags: self.flags,
                is_there: self.is_there,
                copy: (self.task.pace == Pace::PingPong).then(Vec::new),
                yields: self.task.subscribers > 1,
                _kept: kept,
            })
        }

        /// Killed processes would leave their files in /dev/shm.
        fn ask_to_end(&self) -> bool {
            self.flags.end.0.store(true, Ordering::Release);
            true
        }
    }

    pub struct LoanPublisher {
        publisher: Publisher<ipc::Service, [u8], ()>,
        notifier: Option<Notifier<ipc::Service>>,
        payload: Vec<u8>,
        in_place: bool,
        _kept: Kept,
    }

    impl Publish for LoanPublisher {
        fn publish(&mut self, number: u64) -> Result<(), Failure> {
            let loan = self.publisher.loan_slice_uninit(self.payload.len())?;
            if self.in_place {
                // SAFETY: iceoryx2 zeroes the memory when it makes it, and any byte is a u8.
                let mut loan = unsafe { loan.assume_init() };
                loan.payload_mut()[..NUMBER].copy_from_slice(&number.to_ne_bytes());
                loan.send()?;
            } else {
                self.payload[..NUMBER].copy_from_slice(&number.to_ne_bytes());
                loan.write_from_slice(&self.payload).send()?;
            }
            if let Some(notifier) = &self.notifier {
                notifier.notify()?;
            }
            Ok(())
        }
    }

    pub struct LoanSubscriber {
        subscriber: Subscriber<ipc::Service, [u8], ()>,
        listener: Option<Listener<ipc::Service>>,
        flags: &'static Flags,
        is_there: &'static IsThere,
        /// The bytes of the message, where all contenders copy them.
        copy: Option<Vec<u8>>,
        /// Whether it lets others run when there is nothing: there may be more subscribers than CPUs.
        yields: bool,
        _kept: Kept,
    }

    impl Receive for LoanSubscriber {
        fn receive(&mut self) -> Result<Option<u64>, Failure> {
            loop {
                if !self.is_there.0.load(Ordering::Acquire) {
                    std::thread::yield_now();
                    continue;
                }
                if let Some(sample) = self.subscriber.receive()? {
                    if let Some(copy) = &mut self.copy {
                        copy.clear();
                        copy.extend_from_slice(&sample);
                    }
                    return number(&sample).map(Some);
                }
                if self.flags.end.0.load(Ordering::Acquire) {
                    return Ok(None);
                }
                match &self.listener {
                    Some(listener) => {
                        listener.blocking_wait(|_| ())?;
                    }
                    None if self.yields => std::thread::yield_now(),
                    None => std::hint::spin_loop(),
                }
            }
        }
    }

    // ------------------------------------------------------------ ZeroMQ

    /// With `sees_all` sockets hold as many messages as there are; otherwise a thousand each, as by
    /// default, and the publisher's drops those for which there is no space.
    pub fn zeromq(task: Task, sees_all: bool) -> Run {
        run(task, move |task| {
            // An address without a file.
            let (address, is_there) = (format!("ipc://@{}", fresh_name()), memory()?);
            Ok(Sockets { address, is_there, task: *task, sees_all })
        })
    }

    struct Sockets {
        address: String,
        is_there: &'static IsThere,
        task: Task,
        sees_all: bool,
    }

    impl Sockets {
        /// Contexts start threads, so each process makes its own.
        fn socket(&self, kind: zmq::SocketType) -> Result<zmq::Socket, Failure> {
            let socket = zmq::Context::new().socket(kind)?;
            if self.sees_all {
                socket.set_sndhwm(0)?;
                socket.set_rcvhwm(0)?;
            }
            Ok(socket)
        }
    }

    impl Channel for Sockets {
        type Publisher = XPub;
        type Subscriber = Sub;

        /// XPUB is PUB, and reports each subscription.
        fn publisher(&self) -> Result<XPub, Failure> {
            let socket = self.socket(zmq::XPUB)?;
            socket.set_xpub_verbose(true)?;
            socket.bind(&self.address)?;
            self.is_there.0.store(true, Ordering::Release);
            let payload = vec![7; self.task.bytes];
            Ok(XPub { socket, payload, missing: self.task.subscribers, is_lossy: !self.sees_all })
        }

        fn subscriber(&self, _nth: usize) -> Result<Sub, Failure> {
            let socket = self.socket(zmq::SUB)?;
            socket.set_subscribe(b"")?;
            let connecting = Some((self.address.clone(), self.is_there));
            Ok(Sub { socket, message: zmq::Message::new(), connecting })
        }
    }

    pub struct XPub {
        socket: zmq::Socket,
        payload: Vec<u8>,
        /// Subscribers that have not come yet.
        missing: usize,
        is_lossy: bool,
    }

    impl Publish for XPub {
        fn publish(&mut self, number: u64) -> Result<(), Failure> {
            while self.missing > 0 {
                self.socket.recv_bytes(0)?;
                self.missing -= 1;
            }
            self.payload[..NUMBER].copy_from_slice(&number.to_ne_bytes());
            Ok(self.socket.send(&self.payload, 0)?)
        }

        fn is_lossy(&self) -> bool {
            self.is_lossy
        }
    }

    pub struct Sub {
        socket: zmq::Socket,
        message: zmq::Message,
        /// What it waits for before it connects.
        connecting: Option<(String, &'static IsThere)>,
    }

    impl Receive for Sub {
        fn receive(&mut self) -> Result<Option<u64>, Failure> {
            if let Some((address, is_there)) = self.connecting.take() {
                while !is_there.0.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                self.socket.connect(&address)?;
            }
            self.socket.recv(&mut self.message, 0)?;
            number(&self.message).map(Some)
        }
    }
}
