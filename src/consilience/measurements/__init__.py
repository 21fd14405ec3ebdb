"""measurements"""
