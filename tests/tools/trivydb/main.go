// Command trivydb writes a trivy vulnerability database that holds just the advisories it is given, so that a scan
// finds what a test planted and nothing else.
//
//	trivydb FOLDER < advisories.json
//
// The input: {"platform":"debian 12","updated_at":"2026-11-30T00:00:00Z","next_update":"...","advisories":
// [{"id":"CVE-...","package":"openssl","fixed":"3.0.99","severity":"CRITICAL","title":"..."}]}.
// It writes FOLDER/db/trivy.db and FOLDER/db/metadata.json; FOLDER is trivy's --cache-dir.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

type advisory struct {
	ID       string `json:"id"`
	Package  string `json:"package"`
	Fixed    string `json:"fixed"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
}

type request struct {
	Platform   string     `json:"platform"`
	UpdatedAt  time.Time  `json:"updated_at"`
	NextUpdate time.Time  `json:"next_update"`
	Advisories []advisory `json:"advisories"`
}

// trivy-db stores severities as numbers in advisories and as words in the details.
var severities = map[string]int{"UNKNOWN": 0, "LOW": 1, "MEDIUM": 2, "HIGH": 3, "CRITICAL": 4}

func put(tx *bbolt.Tx, path []string, key string, value any) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(path[0]))
	for _, name := range path[1:] {
		if err == nil {
			bucket, err = bucket.CreateBucketIfNotExists([]byte(name))
		}
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return bucket.Put([]byte(key), data)
}

func write(folder string, in request) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	db, err := bbolt.Open(filepath.Join(folder, "trivy.db"), 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		source := map[string]string{"ID": "debian", "Name": "Debian Security Tracker", "URL": "https://example.org"}
		if err := put(tx, []string{"data-source"}, in.Platform, source); err != nil {
			return err
		}
		for _, a := range in.Advisories {
			number, known := severities[a.Severity]
			if !known || a.ID == "" || a.Package == "" {
				return fmt.Errorf("advisory %q for package %q has severity %q", a.ID, a.Package, a.Severity)
			}
			entry := map[string]any{"FixedVersion": a.Fixed, "Severity": number}
			if err := put(tx, []string{in.Platform, a.Package}, a.ID, entry); err != nil {
				return err
			}
			detail := map[string]any{
				"Title": a.Title, "Severity": a.Severity, "VendorSeverity": map[string]int{"debian": number},
			}
			if err := put(tx, []string{"vulnerability"}, a.ID, detail); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	metadata, err := json.Marshal(map[string]any{
		"Version": 2, "UpdatedAt": in.UpdatedAt, "NextUpdate": in.NextUpdate, "DownloadedAt": in.UpdatedAt,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "metadata.json"), metadata, 0o644)
}

func main() {
	var in request
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&in)
	if err == nil && (len(os.Args) != 2 || in.Platform == "") {
		err = fmt.Errorf("want one folder as argument and a platform in the input")
	}
	if err == nil {
		err = write(filepath.Join(os.Args[1], "db"), in)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "trivydb:", err)
		os.Exit(1)
	}
}
