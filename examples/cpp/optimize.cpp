// optimize MODEL OPTIMIZED: optimises a saved TorchScript model without Python, and says what it did.
#include <ipex/jit_optimize.h>
#include <ipex/load.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: optimize MODEL OPTIMIZED\n";
    return 2;
  }
  try {
    const torch::jit::Module optimized = ipex::jit_optimize(ipex::load(argv[1]));
    for (const ipex::Decision& d : ipex::explain(optimized)) {
      std::cout << (d.applied ? "applied   " : "declined  ") << d.pass << ": " << d.node << ": " << d.reason << '\n';
    }
    optimized.save(argv[2]);
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
