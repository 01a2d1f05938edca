//! Libraries that programs use today for calls between threads and processes.
//!
//! Each is used as its manual shows. Peers behind the feature `peers` are at the end.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::calls::{Carrier, Client, Job, Server};
use crate::measure::{Failure, Sample};
use crate::script;

/// Data::ReqRep::Shared between two processes.
pub fn perl(job: &Job) -> Result<Sample, Failure> {
    script::perl("call", "Data::ReqRep::Shared", 5000, job.bytes)
}

// ---------------------------------------------------------------- crossbeam

/// Two bounded channels of as many messages as a segment has slots.
pub struct Crossbeam<M> {
    requests: (Sender<M>, Receiver<M>),
    replies: (Sender<M>, Receiver<M>),
}

/// A message in a channel: a small one in place, a large one on the heap.
pub trait Parcel: Send + 'static {
    fn pack(bytes: &[u8]) -> Self;
    fn len(&self) -> usize;
}

impl<const N: usize> Parcel for [u8; N] {
    fn pack(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("the contender's messages have this size")
    }

    fn len(&self) -> usize {
        N
    }
}

impl Parcel for Vec<u8> {
    fn pack(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl<M: Parcel> Crossbeam<M> {
    const MESSAGES: usize = 64;

    pub fn new(_job: &Job) -> Result<Crossbeam<M>, Failure> {
        Ok(Crossbeam { requests: bounded(Self::MESSAGES), replies: bounded(Self::MESSAGES) })
    }
}

impl<M: Parcel> Carrier for Crossbeam<M> {
    type Client = CrossbeamClient<M>;
    type Server = CrossbeamServer<M>;

    fn client(&self, _nth: usize) -> Result<CrossbeamClient<M>, Failure> {
        Ok(CrossbeamClient { requests: self.requests.0.clone(), replies: self.replies.1.clone() })
    }

    fn server(&self, _nth: usize) -> Result<CrossbeamServer<M>, Failure> {
        Ok(CrossbeamServer { requests: self.requests.1.clone(), replies: self.replies.0.clone() })
    }
}

pub struct CrossbeamClient<M> {
    requests: Sender<M>,
    replies: Receiver<M>,
}

impl<M: Parcel> Client for CrossbeamClient<M> {
    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.requests.send(M::pack(request)).map_err(|_| "no server is left".into())
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        Ok(self.replies.recv()?.len())
    }
}

pub struct CrossbeamServer<M> {
    requests: Receiver<M>,
    replies: Sender<M>,
}

impl<M: Parcel> Server for CrossbeamServer<M> {
    fn answer(&mut self) -> Result<bool, Failure> {
        let request = self.requests.recv()?;
        self.replies.send(request).map_err(|_| "no client is left")?;
        Ok(true)
    }
}

// ---------------------------------------------------------------- the feature `peers`

#[cfg(feature = "peers")]
pub use heavy::{Iceoryx2, IpcChannel, ZeroMq, fresh_name};

#[cfg(feature = "peers")]
mod heavy {
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicU32, Ordering};

    use iceoryx2::pending_response::PendingResponse;
    use iceoryx2::port::{client, server};
    use iceoryx2::prelude::{LogLevel, NodeBuilder, ServiceName, ipc, set_log_level};
    use iceoryx2::service::port_factory::request_response::PortFactory;
    use ipc_channel::ipc::{IpcBytesReceiver, IpcBytesSender, bytes_channel};

    use super::super::bare::Flags;
    use super::*;

    /// A name that no other run uses.
    pub fn fresh_name() -> String {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        format!("pipework-bench-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
    }

    /// iceoryx2's request and response; both sides spin, slices are written once and
    /// read in place.
    pub struct Iceoryx2 {
        name: String,
        job: Job,
        /// The client copies its replies, so that their bytes have been looked at.
        reads: bool,
        flags: &'static Flags,
    }

    type Service = PortFactory<ipc::Service, [u8], (), [u8], ()>;
    type Pending = PendingResponse<ipc::Service, [u8], (), [u8], ()>;

    impl Iceoryx2 {
        pub fn new(job: &Job, reads: bool) -> Result<Iceoryx2, Failure> {
            set_log_level(LogLevel::Error);
            Ok(Iceoryx2 { name: fresh_name(), job: *job, reads, flags: Flags::shared()? })
        }

        fn service(&self) -> Result<Service, Failure> {
            let node = NodeBuilder::new().create::<ipc::Service>()?;
            let service = node.service_builder(&ServiceName::new(&self.name)?);
            let service = service.request_response::<[u8], [u8]>();
            Ok(service.max_active_requests_per_client(self.job.depth).open_or_create()?)
        }
    }

    impl Carrier for Iceoryx2 {
        type Client = Iceoryx2Client;
        type Server = Iceoryx2Server;

        fn client(&self, _nth: usize) -> Result<Iceoryx2Client, Failure> {
            let service = self.service()?;
            let client = service.client_builder().initial_max_slice_len(self.job.bytes).create()?;
            let reply = self.reads.then(Vec::new);
            Ok(Iceoryx2Client { client, pending: VecDeque::new(), reply, _service: service })
        }

        fn server(&self, _nth: usize) -> Result<Iceoryx2Server, Failure> {
            let service = self.service()?;
            let server = service.server_builder().initial_max_slice_len(self.job.bytes).create()?;
            Ok(Iceoryx2Server { server, flags: self.flags, _service: service })
        }

        /// Killed servers would leave their files in /dev/shm.
        fn ask_to_end(&self) -> bool {
            self.flags.end.0.store(true, Ordering::Relaxed);
            true
        }
    }

    pub struct Iceoryx2Client {
        client: client::Client<ipc::Service, [u8], (), [u8], ()>,
        pending: VecDeque<Pending>,
        reply: Option<Vec<u8>>,
        _service: Service,
    }

    impl Client for Iceoryx2Client {
        fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
            let loan = self.client.loan_slice_uninit(request.len())?;
            self.pending.push_back(loan.write_from_slice(request).send()?);
            Ok(())
        }

        fn receive(&mut self) -> Result<usize, Failure> {
            let pending = self.pending.pop_front().ok_or("nothing was sent")?;
            loop {
                if let Some(response) = pending.receive()? {
                    if let Some(reply) = &mut self.reply {
                        reply.clear();
                        reply.extend_from_slice(response.payload());
                    }
                    return Ok(response.payload().len());
                }
                std::hint::spin_loop();
            }
        }
    }

    pub struct Iceoryx2Server {
        server: server::Server<ipc::Service, [u8], (), [u8], ()>,
        flags: &'static Flags,
        _service: Service,
    }

    impl Server for Iceoryx2Server {
        fn answer(&mut self) -> Result<bool, Failure> {
            loop {
                if let Some(request) = self.server.receive()? {
                    let loan = request.loan_slice_uninit(request.payload().len())?;
                    loan.write_from_slice(request.payload()).send()?;
                    return Ok(true);
                }
                if self.flags.end.0.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                std::hint::spin_loop();
            }
        }
    }

    /// A channel of bytes each way.
    pub struct IpcChannel {
        client: Cell<Option<ChannelEnd>>,
        server: Cell<Option<ChannelEnd>>,
    }

    impl IpcChannel {
        pub fn new(_job: &Job) -> Result<IpcChannel, Failure> {
            let (requests, replies) = (bytes_channel()?, bytes_channel()?);
            let client = ChannelEnd { sender: requests.0, receiver: replies.1 };
            let server = ChannelEnd { sender: replies.0, receiver: requests.1 };
            Ok(IpcChannel { client: Cell::new(Some(client)), server: Cell::new(Some(server)) })
        }
    }

    /// Each process takes its end from its own copy.
    impl Carrier for IpcChannel {
        type Client = ChannelEnd;
        type Server = ChannelEnd;

        fn client(&self, _nth: usize) -> Result<ChannelEnd, Failure> {
            self.client.take().ok_or("there is one client".into())
        }

        fn server(&self, _nth: usize) -> Result<ChannelEnd, Failure> {
            self.server.take().ok_or("there is one server".into())
        }
    }

    pub struct ChannelEnd {
        sender: IpcBytesSender,
        receiver: IpcBytesReceiver,
    }

    impl Client for ChannelEnd {
        fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
            Ok(self.sender.send(request)?)
        }

        fn receive(&mut self) -> Result<usize, Failure> {
            Ok(self.receiver.recv()?.len())
        }
    }

    impl Server for ChannelEnd {
        fn answer(&mut self) -> Result<bool, Failure> {
            self.sender.send(&self.receiver.recv()?)?;
            Ok(true)
        }
    }

    /// REQ and REP sockets on an address of the ipc transport. Contexts start threads, so each
    /// process makes its own.
    pub struct ZeroMq {
        name: String,
        job: Job,
    }

    impl ZeroMq {
        pub fn new(job: &Job) -> Result<ZeroMq, Failure> {
            Ok(ZeroMq { name: fresh_name(), job: *job })
        }

        /// Whether calls go by way of a broker: several servers cannot be at one address.
        fn has_broker(&self) -> bool {
            self.job.servers > 1
        }

        /// An address without a file.
        fn address(&self, side: &str) -> String {
            format!("ipc://@{}{side}", self.name)
        }

        /// The proxy that its manual shows, in a thread of the process of the first server.
        fn start_broker(&self) -> Result<(), Failure> {
            let context = zmq::Context::new();
            let (clients, servers) = (context.socket(zmq::ROUTER)?, context.socket(zmq::DEALER)?);
            clients.bind(&self.address(""))?;
            servers.bind(&self.address("-servers"))?;
            // It ends with its process.
            std::thread::spawn(move || zmq::proxy(&clients, &servers));
            Ok(())
        }
    }

    impl Carrier for ZeroMq {
        type Client = ZeroMqEnd;
        type Server = ZeroMqEnd;

        fn client(&self, _nth: usize) -> Result<ZeroMqEnd, Failure> {
            // REQ has one call in progress. A DEALER puts the empty frame there itself, by which
            // REP knows where the envelope ends.
            let overlaps = self.job.depth > 1;
            let end = ZeroMqEnd::new(if overlaps { zmq::DEALER } else { zmq::REQ }, overlaps)?;
            end.socket.connect(&self.address(""))?;
            Ok(end)
        }

        fn server(&self, nth: usize) -> Result<ZeroMqEnd, Failure> {
            let end = ZeroMqEnd::new(zmq::REP, false)?;
            if self.has_broker() {
                if nth == 0 {
                    self.start_broker()?;
                }
                end.socket.connect(&self.address("-servers"))?;
            } else {
                end.socket.bind(&self.address(""))?;
            }
            Ok(end)
        }
    }

    pub struct ZeroMqEnd {
        socket: zmq::Socket,
        message: zmq::Message,
        /// Whether an empty frame goes before each message.
        has_envelope: bool,
    }

    impl ZeroMqEnd {
        fn new(kind: zmq::SocketType, has_envelope: bool) -> Result<ZeroMqEnd, Failure> {
            let socket = zmq::Context::new().socket(kind)?;
            // No message is dropped or held back.
            socket.set_sndhwm(0)?;
            socket.set_rcvhwm(0)?;
            Ok(ZeroMqEnd { socket, message: zmq::Message::new(), has_envelope })
        }
    }

    impl Client for ZeroMqEnd {
        fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
            if self.has_envelope {
                self.socket.send("", zmq::SNDMORE)?;
            }
            Ok(self.socket.send(request, 0)?)
        }

        fn receive(&mut self) -> Result<usize, Failure> {
            if self.has_envelope {
                self.socket.recv(&mut self.message, 0)?;
            }
            self.socket.recv(&mut self.message, 0)?;
            Ok(self.message.len())
        }
    }

    impl Server for ZeroMqEnd {
        fn answer(&mut self) -> Result<bool, Failure> {
            self.socket.recv(&mut self.message, 0)?;
            self.socket.send(&*self.message, 0)?;
            Ok(true)
        }
    }
}
