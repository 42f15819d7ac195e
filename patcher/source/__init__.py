"""The bytes, trees and tables of one file. Imports nothing else of the patcher."""
