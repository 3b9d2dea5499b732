#include "http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

namespace server {
namespace {

using Clock = std::chrono::steady_clock;

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

// A request that is not served, with the sentence that the client gets. The connection ends with it: where the next
// request begins is not known.
struct Refusal {
  int status;
  std::string text;
};

struct ClientIsGone {};

bool wait_for(int socket, short events, Clock::time_point deadline) {
  pollfd waiting{socket, events, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int found = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

void send_all(int socket, const std::string& data, Clock::time_point deadline, int flags = 0) {
  for (size_t sent = 0; sent < data.size();) {
    const ssize_t now = send(socket, data.data() + sent, data.size() - sent, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now >= 0) {
      sent += static_cast<size_t>(now);
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(socket, POLLOUT, deadline))) {
      throw ClientIsGone{};
    }
  }
}

// `has_body`: an answer to HEAD says how long it would be.
void send_response(int socket, const HttpResponse& response, bool has_body, Clock::time_point deadline) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " + reason(response.status) +
                     "\r\nContent-Type: " + response.content_type +
                     "\r\nContent-Length: " + std::to_string(response.body.size()) + "\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  head += response.keep_alive ? "\r\n" : "Connection: close\r\n\r\n";
  const bool sends_body = has_body && !response.body.empty();
  send_all(socket, head, deadline, sends_body ? MSG_MORE : 0);
  if (sends_body) send_all(socket, response.body, deadline);
}

}  // namespace

// Bytes of a socket that are not used up yet.
class Reader {
 public:
  explicit Reader(int socket) : socket_(socket) {}

  // Whether a byte comes before the deadline.
  bool has_more(Clock::time_point deadline) { return !bytes_.empty() || read(deadline) == Outcome::READ; }

  // Up to the empty line that ends a head, which is dropped.
  std::string head(size_t limit, Clock::time_point deadline) {
    size_t looked_at = 0;
    for (;;) {
      const size_t end = bytes_.find("\r\n\r\n", looked_at);
      if (end != std::string::npos && end <= limit) {
        std::string head = bytes_.substr(0, end + 2);
        bytes_.erase(0, end + 4);
        return head;
      }
      if (bytes_.size() > limit) {
        throw Refusal{431, "expected at most " + std::to_string(limit) + " bytes of headers, got more."};
      }
      looked_at = bytes_.size() < 3 ? 0 : bytes_.size() - 3;
      require_more(deadline, "expected headers that end in an empty line");
    }
  }

  std::string body(size_t size, Clock::time_point deadline) {
    while (bytes_.size() < size) {
      require_more(deadline, "expected a body of " + std::to_string(size) + " bytes");
    }
    std::string body = std::move(bytes_);
    bytes_ = body.substr(size);  // of the next request
    body.resize(size);
    return body;
  }

 private:
  enum class Outcome { READ, ENDED, TOO_LATE };

  Outcome read(Clock::time_point deadline) {
    char piece[64 << 10];
    for (;;) {
      if (!wait_for(socket_, POLLIN, deadline)) return Outcome::TOO_LATE;
      const ssize_t size = recv(socket_, piece, sizeof piece, MSG_DONTWAIT);
      if (size > 0) {
        bytes_.append(piece, static_cast<size_t>(size));
        return Outcome::READ;
      }
      if (size == 0 || (errno != EAGAIN && errno != EINTR)) return Outcome::ENDED;
    }
  }

  void require_more(Clock::time_point deadline, const std::string& expected) {
    const Outcome outcome = read(deadline);
    const std::string got = expected + ", got " + std::to_string(bytes_.size()) + " bytes";
    if (outcome == Outcome::TOO_LATE) throw Refusal{408, got + " in the time that a request has."};
    if (outcome == Outcome::ENDED) throw Refusal{400, got + " and the end of the connection."};
  }

  int socket_;
  std::string bytes_;
};

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// A name with a space before its colon is read as another one by some, who then see another end of the request.
bool is_token(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// A bare CR or LF ends a line for some, who then see headers, or a request, that others don't.
bool is_value(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c == '\t' || (c >= ' ' && c != 0x7f); });
}

bool is_target(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

// The first line and the headers. Returns the version.
std::string parse_head(const std::string& head, HttpRequest& request) {
  const size_t line_end = head.find("\r\n");
  const std::string line = head.substr(0, line_end);
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string::npos || first == last || line.compare(last + 1, 5, "HTTP/") != 0) {
    throw Refusal{400, "expected a first line like 'POST /predict HTTP/1.1', got another."};
  }
  const std::string version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") throw Refusal{505, "expected HTTP/1.1, got " + version + "."};
  request.method = line.substr(0, first);
  request.target = line.substr(first + 1, last - first - 1);
  if (!is_token(request.method) || !is_target(request.target)) {
    throw Refusal{400, "expected a method and a target of visible characters, got others."};
  }
  for (size_t begin = line_end + 2; begin < head.size();) {
    const size_t end = head.find("\r\n", begin), colon = head.find(':', begin);
    if (colon == std::string::npos || colon >= end || !is_token(head.substr(begin, colon - begin))) {
      throw Refusal{400, "expected headers like 'Name: value', got a line without such a name."};
    }
    const std::string name = lower(head.substr(begin, colon - begin));
    const std::string value = trimmed(head.substr(colon + 1, end - colon - 1));
    if (!is_value(value)) throw Refusal{400, "expected headers without control characters, got one in " + name + "."};
    const auto [found, is_new] = request.headers.emplace(name, value);
    if (!is_new && name == "content-length") throw Refusal{400, "expected one Content-Length, got several."};
    if (!is_new && name == "host") throw Refusal{400, "expected one Host, got several."};
    if (!is_new) found->second.append(", ").append(value);
    begin = end + 2;
  }
  return version;
}

// What a header lists, in lower case.
std::vector<std::string> listed(const HttpRequest& request, const char* name) {
  std::vector<std::string> values;
  const auto found = request.headers.find(name);
  std::istringstream text(found == request.headers.end() ? "" : lower(found->second));
  for (std::string value; std::getline(text, value, ',');) {
    if (!trimmed(value).empty()) values.push_back(trimmed(value));
  }
  return values;
}

bool wants_close(const HttpRequest& request) {
  const std::vector<std::string> options = listed(request, "connection");
  return std::find(options.begin(), options.end(), "close") != options.end();
}

// Whether the client sends its body once it is told to.
bool waits_to_continue(const HttpRequest& request, const std::string& version) {
  if (version == "HTTP/1.0") return false;
  const std::vector<std::string> expected = listed(request, "expect");
  for (const std::string& value : expected) {
    if (value != "100-continue") throw Refusal{417, "expected 100-continue as Expect, got another."};
  }
  return !expected.empty();
}

size_t body_size(const HttpRequest& request, size_t limit) {
  if (request.headers.count("transfer-encoding")) {
    throw Refusal{411, "expected a Content-Length, got a Transfer-Encoding."};
  }
  const auto found = request.headers.find("content-length");
  if (found == request.headers.end()) {
    if (request.method == "POST" || request.method == "PUT") throw Refusal{411, "expected a Content-Length, got none."};
    return 0;
  }
  const std::string& text = found->second;
  size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc::result_out_of_range || size > limit) {
    throw Refusal{413, "expected at most " + std::to_string(limit) + " bytes of body, got " + text + "."};
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Refusal{400, "expected a number as Content-Length, got '" + text + "'."};
  }
  return size;
}

bool is_gone(int socket) {
  char next;
  const ssize_t size = recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

// Reads on for a moment: closing a socket with unread bytes in it would take the answer from the client.
void close_gently(int socket) {
  shutdown(socket, SHUT_WR);
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  char dropped[64 << 10];
  for (int pieces = 0; pieces < 1024 && wait_for(socket, POLLIN, deadline); ++pieces) {
    if (recv(socket, dropped, sizeof dropped, MSG_DONTWAIT) <= 0) break;
  }
}

// While it lives, so many bytes of bodies are counted: of all connections together.
class Held {
 public:
  Held(std::atomic<size_t>& all, size_t bytes, size_t limit) : all_(all), bytes_(bytes) {
    if (all_.fetch_add(bytes) + bytes <= limit) return;
    all_ -= bytes;
    throw Refusal{503, "expected fewer bytes of bodies at once. Try again later."};
  }
  ~Held() { all_ -= bytes_; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::atomic<size_t>& all_;
  const size_t bytes_;
};

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

HttpServer::HttpServer(const std::string& address, int port, HttpLimits limits, Handler handler, Observer observer)
    : limits_(limits), handler_(std::move(handler)), observer_(std::move(observer)) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1) {
    errno = EINVAL;
    fail("--address: expected one like 127.0.0.1, got '" + address + "'");
  }
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  wake_up_ = eventfd(0, EFD_CLOEXEC);
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 || listen(listener_, SOMAXCONN) != 0) {
    const int error = errno;
    close(listener_);
    close(wake_up_);
    errno = error;
    fail("listening on " + address + ":" + std::to_string(port));
  }
}

HttpServer::~HttpServer() {
  stop(std::chrono::seconds(0));
  close(listener_);
  close(wake_up_);
}

int HttpServer::port() const {
  sockaddr_in where{};
  socklen_t size = sizeof where;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &size);
  return ntohs(where.sin_port);
}

void HttpServer::run() {
  {
    const std::lock_guard lock(mutex_);
    accepting_ = true;
  }
  while (!stopping_) {
    pollfd waiting[2] = {{listener_, POLLIN, 0}, {wake_up_, POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0 || stopping_) continue;
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      // Out of descriptors, mostly: those of other connections will come back.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!start_thread(socket)) refuse_connection(socket);
  }
  const std::lock_guard lock(mutex_);
  accepting_ = false;
  changed_.notify_all();
}

bool HttpServer::start_thread(int socket) {
  const std::lock_guard lock(mutex_);
  if (static_cast<int>(connections_.size()) >= limits_.connections) return false;
  connections_[socket] = false;
  try {
    std::thread(&HttpServer::serve, this, socket).detach();
    return true;
  } catch (const std::system_error&) {  // the system has no more threads
    connections_.erase(socket);
    return false;
  }
}

void HttpServer::refuse_connection(int socket) {
  observer_(503);
  HttpResponse response{503, "server: expected fewer connections at once. Try again later.\n"};
  response.headers = {{"Retry-After", "1"}};
  response.keep_alive = false;
  try {
    send_response(socket, response, /*has_body=*/true, Clock::now());
  } catch (const ClientIsGone&) {
  }
  close(socket);
}

void HttpServer::stop(std::chrono::seconds grace) {
  stopping_ = true;
  const uint64_t one = 1;
  if (write(wake_up_, &one, sizeof one) < 0) fail("waking up");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !accepting_; });
  shutdown(listener_, SHUT_RDWR);
  for (const auto& [socket, is_busy] : connections_) {
    if (!is_busy) shutdown(socket, SHUT_RD);
  }
  const auto is_done = [this] { return connections_.empty(); };
  if (changed_.wait_for(lock, grace, is_done)) return;
  for (const auto& [socket, is_busy] : connections_) shutdown(socket, SHUT_RDWR);
  changed_.wait(lock, is_done);
}

bool HttpServer::begins_request(int socket) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;  // `stop` may have shut it already, as one without a request
  connections_[socket] = true;
  return true;
}

void HttpServer::end_request(int socket) {
  const std::lock_guard lock(mutex_);
  connections_[socket] = false;
}

void HttpServer::serve(int socket) {
  try {
    // Nothing that was read is held any more while the client takes its time to close.
    if (answer_requests(socket)) close_gently(socket);
  } catch (const ClientIsGone&) {
  } catch (const std::exception&) {  // no memory for an answer: the connection ends, and nothing else
  }
  const std::lock_guard lock(mutex_);
  connections_.erase(socket);
  close(socket);
  changed_.notify_all();
}

bool HttpServer::answer_requests(int socket) {
  Reader reader(socket);
  for (;;) {
    if (!reader.has_more(Clock::now() + limits_.between_requests) || !begins_request(socket)) return false;
    if (!answer_request(socket, reader)) return true;
    end_request(socket);
  }
}

bool HttpServer::answer_request(int socket, Reader& reader) {
  const auto deadline = Clock::now() + limits_.transfer;
  HttpRequest request;
  HttpResponse response;
  std::optional<Held> held;  // until the client has its answer
  bool keep = false;         // until the request is read: before, nobody knows where the next one begins
  try {
    const std::string version = parse_head(reader.head(limits_.head_bytes, deadline), request);
    const size_t size = body_size(request, limits_.body_bytes);
    const bool waits = waits_to_continue(request, version);
    held.emplace(held_, size, limits_.all_body_bytes);
    if (waits && size > 0) send_all(socket, "HTTP/1.1 100 Continue\r\n\r\n", deadline);
    request.body = reader.body(size, deadline);
    keep = version == "HTTP/1.1" && !wants_close(request);
    request.client_is_gone = [socket] { return is_gone(socket); };
    response = handler_(request);
  } catch (const Refusal& refusal) {
    response = {refusal.status, "server: " + refusal.text + "\n"};
  } catch (const std::exception& error) {
    response = {500, std::string("server: ") + error.what() + "\n"};
  }
  observer_(response.status);
  response.keep_alive = keep && !stopping_;
  send_response(socket, response, request.method != "HEAD", Clock::now() + limits_.transfer);
  return response.keep_alive;
}

}  // namespace server
