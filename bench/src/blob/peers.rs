//! iceoryx2 with loans: the client writes into memory of its own, and the server reads it in place.
//!
//! Awake, both sides poll, as its examples do. Asleep, each waits for an event of the other side,
//! as its example of event-based communication does.

use super::hands::Task;
use crate::measure::{Failure, Sample};
use crate::reqrep::calls::Job;

type Run = Box<dyn FnMut() -> Result<Sample, Failure>>;

#[cfg(not(feature = "peers"))]
pub fn publish(_job: Job, _task: Task) -> Run {
    Box::new(|| Err("not built: cargo run --features peers".into()))
}

#[cfg(not(feature = "peers"))]
pub fn request(job: Job, task: Task) -> Run {
    publish(job, task)
}

#[cfg(feature = "peers")]
pub use heavy::{publish, request};

#[cfg(feature = "peers")]
mod heavy {
    use std::sync::atomic::Ordering;

    use iceoryx2::port::listener::Listener;
    use iceoryx2::port::notifier::Notifier;
    use iceoryx2::port::publisher::Publisher;
    use iceoryx2::port::subscriber::Subscriber;
    use iceoryx2::port::{client, server};
    use iceoryx2::prelude::{LogLevel, Node, NodeBuilder, ServiceName, ipc, set_log_level};
    use iceoryx2::service::port_factory::{event, publish_subscribe, request_response};

    use super::super::hands::{Giver, Way, run};
    use super::*;
    use crate::reqrep::bare::Flags;
    use crate::reqrep::calls::Server;
    use crate::reqrep::peers::fresh_name;

    pub fn publish(job: Job, task: Task) -> Run {
        run(job, task, |_| Ok(Publishing(Names::new()?)))
    }

    pub fn request(job: Job, task: Task) -> Run {
        run(job, task, |_| Ok(Requesting(Names::new()?)))
    }

    /// What both sides know before they are forked.
    struct Names {
        name: String,
        flags: &'static Flags,
    }

    impl Names {
        fn new() -> Result<Names, Failure> {
            set_log_level(LogLevel::Error);
            Ok(Names { name: fresh_name(), flags: Flags::shared()? })
        }

        fn of(&self, part: &str) -> Result<ServiceName, Failure> {
            Ok(ServiceName::new(&format!("{}-{part}", self.name))?)
        }

        /// The server's waiting, or the client's.
        fn waiting(&self, task: &Task, is_server: bool) -> Result<Turns, Failure> {
            let node = NodeBuilder::new().create::<ipc::Service>()?;
            let [requests, replies] = ["requests", "replies"].map(|part| {
                Ok::<_, Failure>(
                    node.service_builder(&self.of(&format!("event-{part}"))?).event().open_or_create()?,
                )
            });
            let [here, there] = if is_server { [requests?, replies?] } else { [replies?, requests?] };
            let listener = here.listener_builder().create()?;
            let notifier = there.notifier_builder().create()?;
            Ok(Turns {
                listener,
                notifier,
                flags: self.flags,
                is_server,
                sleeps: task.sleeps,
                node,
                _events: [here, there],
            })
        }
    }

    type Events = event::PortFactory<ipc::Service>;

    /// How a side waits for the other one.
    pub struct Turns {
        listener: Listener<ipc::Service>,
        notifier: Notifier<ipc::Service>,
        flags: &'static Flags,
        is_server: bool,
        sleeps: bool,
        node: Node<ipc::Service>,
        _events: [Events; 2],
    }

    impl Turns {
        /// Tells the other side that something was sent.
        fn notify(&self) -> Result<(), Failure> {
            if self.sleeps {
                self.notifier.notify()?;
            }
            Ok(())
        }

        /// Waits for something to receive. `None` if the client has ended.
        fn next<T>(
            &self,
            mut receive: impl FnMut() -> Result<Option<T>, Failure>,
        ) -> Result<Option<T>, Failure> {
            loop {
                if let Some(received) = receive()? {
                    return Ok(Some(received));
                }
                if self.is_server && self.flags.end.0.load(Ordering::Acquire) {
                    return Ok(None);
                }
                if self.sleeps {
                    self.listener.blocking_wait(|_| ())?;
                } else {
                    std::hint::spin_loop();
                }
            }
        }

        fn reply<T>(&self, receive: impl FnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
            self.next(receive)?.ok_or("the client has not ended".into())
        }
    }

    /// The client lets the server end: one that is killed leaves its files in /dev/shm.
    impl Drop for Turns {
        fn drop(&mut self) {
            if !self.is_server {
                self.flags.end.0.store(true, Ordering::Release);
                // It fails if the server has ended already.
                let _ = self.notifier.notify();
            }
        }
    }

    // ------------------------------------------------------------ publish and subscribe

    struct Publishing(Names);

    type Memory = publish_subscribe::PortFactory<ipc::Service, [u8], ()>;
    type Answers = publish_subscribe::PortFactory<ipc::Service, u64, ()>;

    impl Publishing {
        /// For one message at a time, so that its memory is as small as possible.
        fn services(&self, node: &Node<ipc::Service>) -> Result<(Memory, Answers), Failure> {
            let memory = node.service_builder(&self.0.of("memory")?).publish_subscribe::<[u8]>();
            let memory = memory.max_publishers(1).max_subscribers(1).history_size(0);
            let memory = memory.subscriber_max_buffer_size(1).subscriber_max_borrowed_samples(1);
            let answers = node.service_builder(&self.0.of("answers")?).publish_subscribe::<u64>();
            Ok((memory.open_or_create()?, answers.open_or_create()?))
        }
    }

    impl Way for Publishing {
        type Giver = PublishingClient;
        type Taker = PublishingServer;

        fn giver(&self, task: &Task) -> Result<PublishingClient, Failure> {
            let turns = self.0.waiting(task, false)?;
            let services = self.services(&turns.node)?;
            let publisher = services.0.publisher_builder().initial_max_slice_len(task.bytes);
            let publisher = publisher.max_loaned_samples(1).create()?;
            let answers = services.1.subscriber_builder().create()?;
            Ok(PublishingClient { publisher, answers, turns, _services: services })
        }

        fn taker(&self, task: &Task) -> Result<PublishingServer, Failure> {
            let turns = self.0.waiting(task, true)?;
            let services = self.services(&turns.node)?;
            let subscriber = services.0.subscriber_builder().create()?;
            let answers = services.1.publisher_builder().create()?;
            Ok(PublishingServer { subscriber, answers, turns, task: *task, _services: services })
        }

        fn ask_to_end(&self) -> bool {
            true
        }
    }

    pub struct PublishingClient {
        publisher: Publisher<ipc::Service, [u8], ()>,
        answers: Subscriber<ipc::Service, u64, ()>,
        turns: Turns,
        _services: (Memory, Answers),
    }

    impl Giver for PublishingClient {
        fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure> {
            let loan = self.publisher.loan_slice_uninit(task.bytes)?;
            // SAFETY: iceoryx2 zeroes the memory when it makes it, and any byte is a u8.
            let mut loan = unsafe { loan.assume_init() };
            task.write(loan.payload_mut(), number);
            loan.send()?;
            self.turns.notify()?;
            let answer = self.turns.reply(|| Ok(self.answers.receive()?))?;
            Ok(*answer)
        }
    }

    pub struct PublishingServer {
        subscriber: Subscriber<ipc::Service, [u8], ()>,
        answers: Publisher<ipc::Service, u64, ()>,
        turns: Turns,
        task: Task,
        _services: (Memory, Answers),
    }

    impl Server for PublishingServer {
        fn answer(&mut self) -> Result<bool, Failure> {
            let Some(sample) = self.turns.next(|| Ok(self.subscriber.receive()?))? else { return Ok(false) };
            let sum = self.task.read(&sample)?;
            drop(sample);
            self.answers.send_copy(sum)?;
            self.turns.notify()?;
            Ok(true)
        }
    }

    // ------------------------------------------------------------ request and response

    struct Requesting(Names);

    type Requests = request_response::PortFactory<ipc::Service, [u8], (), u64, ()>;

    impl Requesting {
        fn service(&self, node: &Node<ipc::Service>) -> Result<Requests, Failure> {
            let service = node.service_builder(&self.0.of("requests")?).request_response::<[u8], u64>();
            let service = service.max_clients(1).max_servers(1).max_active_requests_per_client(1);
            Ok(service.max_loaned_requests(1).open_or_create()?)
        }
    }

    impl Way for Requesting {
        type Giver = RequestingClient;
        type Taker = RequestingServer;

        fn giver(&self, task: &Task) -> Result<RequestingClient, Failure> {
            let turns = self.0.waiting(task, false)?;
            let service = self.service(&turns.node)?;
            let client = service.client_builder().initial_max_slice_len(task.bytes).create()?;
            Ok(RequestingClient { client, turns, _service: service })
        }

        fn taker(&self, task: &Task) -> Result<RequestingServer, Failure> {
            let turns = self.0.waiting(task, true)?;
            let service = self.service(&turns.node)?;
            Ok(RequestingServer {
                server: service.server_builder().create()?,
                turns,
                task: *task,
                _service: service,
            })
        }

        fn ask_to_end(&self) -> bool {
            true
        }
    }

    pub struct RequestingClient {
        client: client::Client<ipc::Service, [u8], (), u64, ()>,
        turns: Turns,
        _service: Requests,
    }

    impl Giver for RequestingClient {
        fn give(&mut self, task: &Task, number: u64) -> Result<u64, Failure> {
            let loan = self.client.loan_slice_uninit(task.bytes)?;
            // SAFETY: as above.
            let mut loan = unsafe { loan.assume_init() };
            task.write(loan.payload_mut(), number);
            let pending = loan.send()?;
            self.turns.notify()?;
            let answer = self.turns.reply(|| Ok(pending.receive()?))?;
            Ok(*answer.payload())
        }
    }

    pub struct RequestingServer {
        server: server::Server<ipc::Service, [u8], (), u64, ()>,
        turns: Turns,
        task: Task,
        _service: Requests,
    }

    impl Server for RequestingServer {
        fn answer(&mut self) -> Result<bool, Failure> {
            let Some(request) = self.turns.next(|| Ok(self.server.receive()?))? else { return Ok(false) };
            let sum = self.task.read(request.payload())?;
            request.send_copy(sum)?;
            drop(request);
            self.turns.notify()?;
            Ok(true)
        }
    }
}
