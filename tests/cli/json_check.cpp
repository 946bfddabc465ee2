/// json_check lines|file PATH: succeeds if the file is JSON Lines, or one JSON document, by the letter of RFC
/// 8259.
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ifstream in(argv[2], std::ios::binary);
  if (!in) return 2;
  int number = 0;
  try {
    if (std::string(argv[1]) == "lines") {
      for (std::string line; std::getline(in, line); ++number) {
        if (!nlohmann::json::parse(line).is_object()) throw std::runtime_error("not an object");
      }
      return number > 0 ? 0 : 1;
    }
    return nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(in), {})).empty() ? 1 : 0;
  } catch (const std::exception& error) {
    std::cerr << argv[2] << ", line " << number + 1 << ": " << error.what() << '\n';
    return 1;
  }
}
