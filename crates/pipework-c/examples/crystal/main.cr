# A call, and a reply that comes word by word, from Crystal: a worker process and its caller.

@[Link("pipework")]
lib LibPipework
  OK          = 0
  INTERRUPTED = 3
  CLOSED      = 4
  NEVER       = Int64::MAX

  type Segment = Void*
  type Client = Void*
  type Server = Void*
  type Stream = Void*

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

  fun in_ms = pwk_in_ms(ms : Int64) : Int64
  fun error_text = pwk_error_text(error : Error*, text : UInt8*, size : LibC::SizeT) : LibC::SizeT
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
end

# Repeats a call after a signal, and raises its failure. Returns false at the end.
def done?(& : Pointer(LibPipework::Error) -> Int32) : Bool
  error = LibPipework::Error.new
  loop do
    case yield pointerof(error)
    when LibPipework::OK          then return true
    when LibPipework::CLOSED      then return false
    when LibPipework::INTERRUPTED then next
    else
      text = Bytes.new(256)
      LibPipework.error_text(pointerof(error), text, text.size)
      raise String.new(text.to_unsafe)
    end
  end
end

def text(buffer : LibPipework::Buffer) : String
  String.new(buffer.data, buffer.len)
end

# Answers "one two three" with its words, one after the other, and the last one with the reply.
def serve(segment : LibPipework::Segment)
  server = uninitialized LibPipework::Server
  done? { |error| LibPipework.server(segment, nil, pointerof(server), error) }
  data, request = LibPipework::Buffer.new, LibPipework::Request.new
  loop do
    done? { |error| LibPipework.recv(server, LibPipework::NEVER, pointerof(data), pointerof(request), error) }
    words = text(data).split
    last = words.pop
    words.map(&.+(" ")).each do |word|
      done? do |error|
        wait = LibPipework.in_ms(5000)
        LibPipework.part(server, request.ticket, word, word.bytesize, 0, wait, nil, error)
      end
    end
    done? { |error| LibPipework.reply(server, request.ticket, last, last.bytesize, error) }
  end
end

segment = uninitialized LibPipework::Segment
client = uninitialized LibPipework::Client
stream = uninitialized LibPipework::Stream
reply = LibPipework::Buffer.new
done? { |error| LibPipework.anonymous(nil, pointerof(segment), error) }
worker = Process.fork { serve(segment) }

done? { |error| LibPipework.client(segment, nil, pointerof(client), error) }
asked, wait = "hello from Crystal", LibPipework.in_ms(5000)
done? { |error| LibPipework.call(client, asked, asked.bytesize, wait, pointerof(reply), error) }
puts text(reply)

# The same, part by part.
done? do |error|
  LibPipework.stream(client, asked, asked.bytesize, 0, wait, pointerof(stream), error)
end
while done? { |error| LibPipework.next_part(stream, LibPipework.in_ms(5000), pointerof(reply), nil, error) }
  puts "part: #{text(reply)}"
end

LibPipework.stream_free(stream)
LibPipework.buffer_free(pointerof(reply))
LibPipework.client_free(client)
LibPipework.segment_free(segment)
worker.signal(Signal::KILL)
worker.wait
