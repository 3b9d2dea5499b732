// Requests from a socket. llhttp takes them apart; limits bound what a client can make the server hold or wait for.
#pragma once

#include <llhttp.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <string>

#include "http.h"

namespace server {

using Clock = std::chrono::steady_clock;

// A request that is not served, with the sentence that the client gets. The connection ends with it: where the next
// request begins is not known.
struct Refusal {
  int status;
  std::string text;
};

struct ClientIsGone {};

bool wait_for(int socket, short events, Clock::time_point deadline);
// Throws ClientIsGone.
void send_all(int socket, const std::string& data, Clock::time_point deadline, int flags = 0);

// The bytes of a body, counted with those of all connections while it lives.
class Held {
 public:
  Held(std::atomic<size_t>& all, const HttpLimits& limits) : all_(all), limits_(limits) {}
  ~Held() { all_ -= bytes_; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // Throws Refusal where these are too many.
  void grow_to(uint64_t bytes);

 private:
  std::atomic<size_t>& all_;
  const HttpLimits& limits_;
  size_t bytes_ = 0;
};

// The requests of a connection.
class Reader {
 public:
  explicit Reader(int socket) : socket_(socket) {}

  // Whether a byte, or the end of the connection, comes before the deadline.
  bool has_more(Clock::time_point deadline) const { return !bytes_.empty() || wait_for(socket_, POLLIN, deadline); }

  // Reads a request, of which a byte is there. Returns whether its client may send another one. Throws Refusal, with the
  // method where that came; ClientIsGone where nothing came.
  bool read(HttpRequest& request, size_t most_head, Held& held, Clock::time_point deadline);

 private:
  void receive(Clock::time_point deadline);
  template <typename Count>
  void parse(Clock::time_point deadline, const Count& count);
  void check_head(const std::string& head) const;
  std::string header(const char* name) const;

  // What llhttp calls.
  template <auto call, typename... Span>
  static int guarded(llhttp_t* parser, Span... span);
  static const llhttp_settings_t CALLS;
  void add_target(const char* at, size_t size) { request_->target.append(at, size); }
  void add_name(const char* at, size_t size) { name_.append(at, size); }
  void add_value(const char* at, size_t size) { value_.append(at, size); }
  void add_body(const char* at, size_t size) { request_->body.append(at, size); }
  void end_header();

  const int socket_;
  std::string bytes_;  // that llhttp did not get yet
  llhttp_t parser_;
  HttpRequest* request_ = nullptr;
  size_t used_ = 0;           // bytes of this request
  std::string name_, value_;  // of a header
  std::exception_ptr error_;  // of a call
};

}  // namespace server
