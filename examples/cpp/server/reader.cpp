#include "reader.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string_view>
#include <utility>

namespace server {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

}  // namespace

bool wait_for(int socket, short events, Clock::time_point deadline) {
  pollfd waiting{socket, events, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int found = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

void send_all(int socket, const std::string& data, Clock::time_point deadline, int flags) {
  for (size_t sent = 0; sent < data.size();) {
    const ssize_t now = send(socket, data.data() + sent, data.size() - sent, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now >= 0) {
      sent += static_cast<size_t>(now);
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(socket, POLLOUT, deadline))) {
      throw ClientIsGone{};
    }
  }
}

void Held::grow_to(uint64_t bytes) {
  if (bytes <= bytes_) return;
  if (bytes > limits_.body_bytes) {
    throw Refusal{413, "expected at most " + std::to_string(limits_.body_bytes) + " bytes of body, got more."};
  }
  const size_t more = bytes - bytes_;
  if (all_.fetch_add(more) + more > limits_.all_body_bytes) {
    all_ -= more;
    throw Refusal{503, "expected fewer bytes of bodies at once. Try again later."};
  }
  bytes_ = bytes;
}

bool Reader::read(HttpRequest& request, size_t most_head, Held& held, Clock::time_point deadline) {
  llhttp_init(&parser_, HTTP_REQUEST, &CALLS);
  parser_.data = this;
  request_ = &request;
  used_ = 0;
  std::string head;
  parse(deadline, [&](std::string_view piece) {
    head += piece;
    if (head.size() > most_head) {
      throw Refusal{431, "expected at most " + std::to_string(most_head) + " bytes of headers, got more."};
    }
    if (head[0] == '\r' || head[0] == '\n') throw Refusal{400, "expected a request, got an empty line."};
  });
  check_head(head);
  const bool keep = parser_.http_minor == 1 && llhttp_should_keep_alive(&parser_);
  held.grow_to(parser_.content_length);
  request.body.reserve(parser_.content_length);
  if (parser_.http_minor == 1 && header("expect") == "100-continue") {
    send_all(socket_, "HTTP/1.1 100 Continue\r\n\r\n", deadline);
  }
  parse(deadline, [&](std::string_view) {
    const uint64_t size = used_ - head.size();            // with the lines between chunks
    const uint64_t announced = parser_.content_length;    // and still to come
    held.grow_to(std::max(announced, size + announced));  // the first one where the sum overflows
  });
  return keep;
}

// Gives llhttp what comes until it pauses, and `count` each piece that it has used up.
template <typename Count>
void Reader::parse(Clock::time_point deadline, const Count& count) {
  for (;; receive(deadline)) {
    const llhttp_errno_t error = llhttp_execute(&parser_, bytes_.data(), bytes_.size());
    request_->method = llhttp_method_name(static_cast<llhttp_method_t>(parser_.method));
    if (error_) std::rethrow_exception(error_);
    if (error != HPE_OK && error != HPE_PAUSED) {
      const std::string reason = llhttp_get_error_reason(&parser_);
      throw Refusal{parser_.http_major == 2 ? 505 : 400,
                    "expected a request of HTTP/1.1, got another: " + reason + "."};
    }
    const char* end = llhttp_get_error_pos(&parser_);
    const size_t size = error == HPE_OK ? bytes_.size() : static_cast<size_t>(end - bytes_.data());
    used_ += size;
    count(std::string_view(bytes_).substr(0, size));
    bytes_.erase(0, size);
    if (error == HPE_PAUSED) return llhttp_resume(&parser_);
  }
}

void Reader::receive(Clock::time_point deadline) {
  const std::string got = "expected the rest of a request, got " + std::to_string(used_) + " bytes";
  char piece[64 << 10];
  for (;;) {
    if (!wait_for(socket_, POLLIN, deadline)) throw Refusal{408, got + " in the time that a request has."};
    const ssize_t size = recv(socket_, piece, sizeof piece, MSG_DONTWAIT);
    if (size > 0) {
      bytes_.append(piece, static_cast<size_t>(size));
      return;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (used_ == 0) throw ClientIsGone{};
    throw Refusal{400, got + " and the end of the connection."};
  }
}

// What llhttp lets pass, and others may read otherwise.
void Reader::check_head(const std::string& head) const {
  // More than one space, RTSP for HTTP, HTTP/0.9 and 2.0.
  const bool is_old = parser_.http_minor == 0;
  if (!head.starts_with(request_->method + " " + request_->target + (is_old ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n"))) {
    const int status = parser_.http_major == 1 ? 400 : 505;
    throw Refusal{status, "expected a first line like 'POST /predict HTTP/1.1', got another."};
  }
  // Its body would be taken for the next request.
  if (parser_.method == HTTP_CONNECT) throw Refusal{501, "expected another method, got CONNECT."};
  if (header("host").find(',') != std::string::npos) throw Refusal{400, "expected one Host, got several."};
  const std::string expected = header("expect");
  if (!is_old && !expected.empty() && expected != "100-continue") {
    throw Refusal{417, "expected 100-continue as Expect, got another."};
  }
  const bool has_encoding = request_->headers.count("transfer-encoding");
  if (has_encoding && (is_old || header("transfer-encoding") != "chunked")) {
    const int status = !is_old && parser_.flags & F_CHUNKED ? 501 : 400;
    throw Refusal{status, "expected chunked as Transfer-Encoding of HTTP/1.1, got another."};
  }
  const bool must_have_size = parser_.method == HTTP_POST || parser_.method == HTTP_PUT;
  if (must_have_size && !has_encoding && !request_->headers.count("content-length")) {
    throw Refusal{411, "expected a Content-Length or chunks, got none."};
  }
}

std::string Reader::header(const char* name) const {
  const auto found = request_->headers.find(name);
  return found == request_->headers.end() ? "" : lower(found->second);
}

void Reader::end_header() {
  const std::string name = lower(std::exchange(name_, "")), value = trimmed(std::exchange(value_, ""));
  if (parser_.flags & F_TRAILING) return;  // of a trailer, behind the last chunk
  const auto [header, is_new] = request_->headers.emplace(name, value);
  if (!is_new) header->second += ", " + value;
}

// llhttp is C: no exception may pass through it.
template <auto call, typename... Span>
int Reader::guarded(llhttp_t* parser, Span... span) {
  Reader& reader = *static_cast<Reader*>(parser->data);
  try {
    (reader.*call)(span...);
    return HPE_OK;
  } catch (...) {
    reader.error_ = std::current_exception();
    return HPE_USER;
  }
}

const llhttp_settings_t Reader::CALLS = {
    .on_url = guarded<&Reader::add_target>,
    .on_header_field = guarded<&Reader::add_name>,
    .on_header_value = guarded<&Reader::add_value>,
    .on_headers_complete = [](llhttp_t*) -> int { return HPE_PAUSED; },
    .on_body = guarded<&Reader::add_body>,
    .on_message_complete = [](llhttp_t*) -> int { return HPE_PAUSED; },
    .on_header_value_complete = guarded<&Reader::end_header>,
};

}  // namespace server
