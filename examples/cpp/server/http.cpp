#include "http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

#include "reader.h"

namespace server {
namespace {

std::string reason(int status) {
  std::string name = llhttp_status_name(static_cast<llhttp_status_t>(status));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
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
  HttpRequest request;
  HttpResponse response;
  Held held(held_, limits_);  // until the client has its answer
  bool keep = false;          // until the request is read: before, nobody knows where the next one begins
  try {
    keep = reader.read(request, limits_.head_bytes, held, Clock::now() + limits_.transfer);
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
