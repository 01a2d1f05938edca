# From Crystal: a call, a reply that comes word by word, and messages from several processes through one pipe.
#
# A wait in the library blocks the thread, and with it every fiber of the program. So each process here either
# waits or has something else to do.

@[Link("pipework")]
lib LibPipework
  OK     = 0
  CLOSED = 4
  NEVER  = Int64::MAX

  type Segment = Void*
  type Client = Void*
  type Server = Void*
  type Stream = Void*
  type Reader = Void*
  type Writer = Void*

  struct Error
    kind : Int32
    os : Int32
    done : UInt64
    op : UInt8[48]
  end

  struct Buffer
    data : UInt8*
    len : LibC::SizeT
    capacity : LibC::SizeT
  end

  struct Request
    ticket : UInt64
    offset : LibC::SizeT
    len : LibC::SizeT
    flags : UInt32
    redeliveries : UInt16
    has_more : Bool
  end

  struct Key
    pid : Int32
    tid : Int32
  end

  struct Item
    kind : UInt32
    parts : UInt32
    writer : Key
    data : UInt8*
    len : LibC::SizeT
    compressed : UInt8*
    compressed_len : LibC::SizeT
    torn_bytes : LibC::SizeT
    torn : Int32
    limit : UInt32
  end

  fun in_ms = pwk_in_ms(ms : Int64) : Int64
  fun error_text = pwk_error_text(error : Error*, text : UInt8*, size : LibC::SizeT) : LibC::SizeT
  fun set_interrupt_hook = pwk_set_interrupt_hook(go_on : -> Bool, error : Error*) : Int32
  fun buffer_free = pwk_buffer_free(buffer : Buffer*)

  fun anonymous = pwk_segment_anonymous(options : Void*, segment : Segment*, error : Error*) : Int32
  fun client = pwk_client_new(segment : Segment, options : Void*, client : Client*, error : Error*) : Int32
  fun server = pwk_server_new(segment : Segment, options : Void*, server : Server*, error : Error*) : Int32
  fun call = pwk_client_call(client : Client, data : UInt8*, len : LibC::SizeT, deadline : Int64,
                             reply : Buffer*, error : Error*) : Int32
  fun stream = pwk_client_stream(client : Client, data : UInt8*, len : LibC::SizeT, flags : UInt32,
                                 deadline : Int64, stream : Stream*, error : Error*) : Int32
  fun next_part = pwk_stream_next_part(stream : Stream, deadline : Int64, part : Buffer*, flags : UInt32*,
                                       error : Error*) : Int32
  fun recv = pwk_server_recv(server : Server, deadline : Int64, data : Buffer*, request : Request*,
                             error : Error*) : Int32
  fun part = pwk_server_part(server : Server, ticket : UInt64, data : UInt8*, len : LibC::SizeT, flags : UInt32,
                             deadline : Int64, wanted : Bool*, error : Error*) : Int32
  fun reply = pwk_server_reply(server : Server, ticket : UInt64, data : UInt8*, len : LibC::SizeT,
                               error : Error*) : Int32
  fun client_free = pwk_client_free(client : Client)
  fun stream_free = pwk_stream_free(stream : Stream)
  fun server_free = pwk_server_free(server : Server)
  fun segment_free = pwk_segment_free(segment : Segment)

  fun pair = pwk_atomic_pair(options : Void*, reader : Reader*, writer : Writer*, error : Error*) : Int32
  fun send = pwk_atomic_writer_send(writer : Writer, data : UInt8*, len : LibC::SizeT, deadline : Int64,
                                    error : Error*) : Int32
  fun recv_message = pwk_atomic_reader_recv(reader : Reader, deadline : Int64, message : Item*,
                                            error : Error*) : Int32
  fun reader_free = pwk_atomic_reader_free(reader : Reader)
  fun writer_free = pwk_atomic_writer_free(writer : Writer)
end

# Raises the failure of a call. Returns false at the end. A call is never repeated here: a server may have carried
# it out.
def done?(& : Pointer(LibPipework::Error) -> Int32) : Bool
  error = LibPipework::Error.new
  case yield pointerof(error)
  when LibPipework::OK     then true
  when LibPipework::CLOSED then false
  else
    text = Bytes.new(256)
    LibPipework.error_text(pointerof(error), text, text.size)
    raise String.new(text.to_unsafe)
  end
end

def text(buffer : LibPipework::Buffer) : String
  String.new(buffer.data, buffer.len)
end

def soon
  LibPipework.in_ms(60000)
end

# Answers "one two three" with its words, one after the other, and the last one with the reply. It thinks a moment
# before each.
def serve(segment : LibPipework::Segment)
  server = uninitialized LibPipework::Server
  done? { |error| LibPipework.server(segment, nil, pointerof(server), error) }
  data, request = LibPipework::Buffer.new, LibPipework::Request.new
  loop do
    done? { |error| LibPipework.recv(server, LibPipework::NEVER, pointerof(data), pointerof(request), error) }
    puts "asked: #{text(data)}"
    STDOUT.flush
    words = text(data).split
    last = words.pop
    words.map(&.+(" ")).each do |word|
      sleep 0.02
      done? { |error| LibPipework.part(server, request.ticket, word, word.bytesize, 0, soon, nil, error) }
    end
    sleep 0.02
    done? { |error| LibPipework.reply(server, request.ticket, last, last.bytesize, error) }
  end
end

# Without a hook, every signal that has a handler ends a wait, and `call` has cancelled its call by then: Crystal
# handles SIGCHLD, for instance. The hook is asked whether to go on.
done? { |error| LibPipework.set_interrupt_hook(->{ true }, error) }

segment = uninitialized LibPipework::Segment
client = uninitialized LibPipework::Client
stream = uninitialized LibPipework::Stream
reply = LibPipework::Buffer.new
done? { |error| LibPipework.anonymous(nil, pointerof(segment), error) }
worker = Process.fork { serve(segment) }

# reqrep: a call.
done? { |error| LibPipework.client(segment, nil, pointerof(client), error) }
asked = "hello from Crystal"
done? { |error| LibPipework.call(client, asked, asked.bytesize, soon, pointerof(reply), error) }
puts text(reply)
STDOUT.flush

# The same, part by part.
done? { |error| LibPipework.stream(client, asked, asked.bytesize, 0, soon, pointerof(stream), error) }
while done? { |error| LibPipework.next_part(stream, soon, pointerof(reply), nil, error) }
  puts "part: #{text(reply)}"
end
LibPipework.stream_free(stream)
LibPipework.buffer_free(pointerof(reply))
LibPipework.client_free(client)
worker.signal(Signal::KILL)
worker.wait
LibPipework.segment_free(segment)

# atomic: three processes send messages of any size, which never mix.
reader = uninitialized LibPipework::Reader
writer = uninitialized LibPipework::Writer
done? { |error| LibPipework.pair(nil, pointerof(reader), pointerof(writer), error) }
senders = (1..3).map do |number|
  Process.fork do
    message = "#{number}" * 100_000
    done? { |error| LibPipework.send(writer, message, message.bytesize, soon, error) }
  end
end
LibPipework.writer_free(writer) # the stream ends with its last writer
message = LibPipework::Item.new
received = [] of String
while done? { |error| LibPipework.recv_message(reader, soon, pointerof(message), error) }
  received << String.new(message.data, message.len)
end
received.sort.each { |whole| puts "message: #{whole.size} times #{whole.chars.uniq.join}" }
LibPipework.reader_free(reader)
senders.each(&.wait)
